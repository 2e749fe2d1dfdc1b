// SPDX-License-Identifier: MIT
// The update of all parameters, and the schedules of learning rate and context.
#pragma once

#include "src/parameters.h"

#include <cstdint>
#include <span>

namespace weft {
struct Config;
struct TrainConfig;
enum class Optimizer : uint8_t;

// Learning rate of update `step` (0-based): linear warm-up to `learning_rate`, then cosine or
// linear decay to final_learning_rate * learning_rate at the last step, or constant.
double learning_rate(const TrainConfig&, int64_t step);

// Context length in force at `step`.
int64_t context_at(const TrainConfig&, int64_t full_context, int64_t step);

// Launches clipping by the global norm, in f16 the loss scale, then the optimizer of matrices for
// store.matrices() and AdamW for all other parameters, and the moving average. Reads ctx.step,
// writes ctx.results. A CUDA graph may capture it.
void update_parameters(Ctx&, ParameterStore&, const TrainConfig&);

// ---- what it is made of, for processes that share the work ----

// Clipping and the loss scale. The norm is that of the gradients, or follows from sums of their
// `squares`.
void prepare_update(Ctx&, const ParameterStore&, const TrainConfig&, const Tensor& squares = {});
// The update of one part. `o`: the directions of all of store.matrices(), null where it is empty.
void update_part(Ctx&, const ParameterStore&, const TrainConfig&, const OwnPart&, const Tensor& o);

// The elements of a part that lie in [begin, end).
OwnPart within(const OwnPart& part, int64_t begin, int64_t end);

// What an update of a part writes besides its master weights; null views where there is none.
TensorView ema_of(const ParameterStore&, const OwnPart&);
TensorView compute_of(const ParameterStore&, const OwnPart&);

// ---- optimizers of matrices, which parts bring (src/parts/parts.h) ----

// Moves each matrix of store.matrices() along a direction that depends on all of its elements. An
// update calls momentum(), directions(), normalise() and update() in this order.
struct MatrixOptimizer {
  Optimizer kind;  // train.optimizer
  // The type of u and o in a model that computes in `compute`.
  DType (*dtype)(DType compute);
  // How many blocks store.matrices() is cut into: of equal length, with the same matrices in each.
  int64_t (*blocks)(const ParameterStore&);
  // Writes u of a part of store.matrices(), from its gradients and m.
  void (*momentum)(Ctx&, const ParameterStore&, const OwnPart&, const Tensor& u);
  // In place: x (some blocks, elements of a block) holds u before and o afterwards.
  void (*directions)(Ctx&, const ParameterStore&, const Tensor& x);
  // Second moments of the rows of all matrices lie in store.v(), where AdamW has its own. A process
  // that has a part of it collects all: how many they are, and a copy of those in a part of
  // store.matrices() to a dense tensor, or back.
  int64_t (*moments)(const ParameterStore&);
  void (*move_moments)(Ctx&, const ParameterStore&, const OwnPart&, const Tensor& moments,
                       bool back);
  // In place: the directions o of all of store.matrices(), with the moments, which it updates. A
  // null tensor: those of a store that has all of v.
  void (*normalise)(Ctx&, const ParameterStore&, const Tensor& o, const Tensor& moments);
  // Moves the weights of a part along its directions o.
  void (*update)(Ctx&, const ParameterStore&, const TrainConfig&, const OwnPart&, const Tensor& o);
  // Bytes that an update takes besides the state of AdamW.
  int64_t (*bytes)(const Config&, std::span<const ParamInfo>);
};

void add_matrix_optimizer(const MatrixOptimizer&);
// That of train.optimizer. Throws Error for AdamW, which needs none, and for an absent part's.
const MatrixOptimizer& matrix_optimizer(const TrainConfig&);
}  // namespace weft
