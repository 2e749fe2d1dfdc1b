// SPDX-License-Identifier: MIT
// After the backward pass: clip, loss scale, AdamW and Muon. Before: the schedules that feed
// StepScalars.
#pragma once

#include "kernels/optimizer/muon.h"
#include "src/parameters.h"

#include <vector>

namespace weft {
struct TrainConfig;

// Learning rate of update `step` (0-based): linear warm-up to `learning_rate`, then cosine or
// linear decay to final_learning_rate * learning_rate at the last step, or constant.
double learning_rate(const TrainConfig&, int64_t step);

// Context length in force at `step`.
int64_t context_at(const TrainConfig&, int64_t full_context, int64_t step);

// Launches clipping by the global norm, in f16 the loss scale, and AdamW with the moving average;
// of store.muon(), Muon. Reads ctx.step, writes ctx.results; may be captured.
void update_parameters(Ctx&, ParameterStore&, const TrainConfig&);

// ---- what it is made of, for processes that share the work ----

// Clipping, of all gradients or of sums of their `squares`, and the loss scale.
void prepare_update(Ctx&, const ParameterStore&, const TrainConfig&, const Tensor& squares = {});
// AdamW and Muon of one part. `o`: the directions of all of store.muon().
void update_part(Ctx&, const ParameterStore&, const TrainConfig&, const OwnPart&, const Tensor& o);

// What of a part lies in [begin, end).
OwnPart within(const OwnPart& part, int64_t begin, int64_t end);

// The elements of store.muon(): `count` times the same matrices, each time `period` elements on.
struct MuonBlocks {
  int64_t count = 0, period = 0;
  std::vector<MuonMatrix> matrices;
};

MuonBlocks muon_blocks(const ParameterStore&);
// `u` of a part of store.muon().
void muon_momentum(Ctx&, const ParameterStore&, const OwnPart&, const Tensor& u);
// In place: x (blocks, period) is u before and o afterwards.
void orthogonalise(Ctx&, const MuonBlocks&, const Tensor& x);
}  // namespace weft
