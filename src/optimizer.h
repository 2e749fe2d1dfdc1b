// SPDX-License-Identifier: MIT
// The update of all parameters, and the schedules of learning rate and context.
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

// Launches clipping by the global norm, in f16 the loss scale, then Muon for store.muon() and AdamW
// for all other parameters, and the moving average. Reads ctx.step, writes ctx.results. A CUDA
// graph may capture it.
void update_parameters(Ctx&, ParameterStore&, const TrainConfig&);

// ---- what it is made of, for processes that share the work ----

// Clipping and the loss scale. The norm is that of the gradients, or follows from sums of their
// `squares`.
void prepare_update(Ctx&, const ParameterStore&, const TrainConfig&, const Tensor& squares = {});
// AdamW and Muon for one part. `o`: the results of orthogonalise() for all of store.muon().
void update_part(Ctx&, const ParameterStore&, const TrainConfig&, const OwnPart&, const Tensor& o);

// The elements of a part that lie in [begin, end).
OwnPart within(const OwnPart& part, int64_t begin, int64_t end);

// The matrices in store.muon(): `count` blocks of the same matrices, `period` elements apart.
struct MuonBlocks {
  int64_t count = 0, period = 0;
  std::vector<MuonMatrix> matrices;
};

MuonBlocks muon_blocks(const ParameterStore&);
// MuonMomentum of a part of store.muon(): writes u.
void muon_momentum(Ctx&, const ParameterStore&, const OwnPart&, const Tensor& u);
// NewtonSchulz in place: x (count, period) holds u before and o afterwards.
void orthogonalise(Ctx&, const MuonBlocks&, const Tensor& x);
}  // namespace weft
