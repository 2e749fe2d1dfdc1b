// SPDX-License-Identifier: MIT
// After the backward pass: clip, loss scale, AdamW and Muon. Before: the schedules that feed
// StepScalars.
#pragma once

#include "src/parameters.h"

namespace weft {
struct TrainConfig;

// Learning rate of update `step` (0-based): linear warm-up to `learning_rate`, then cosine or
// linear decay to final_learning_rate * learning_rate at the last step, or constant.
double learning_rate(const TrainConfig&, int64_t step);

// Context length in force at `step`.
int64_t context_at(const TrainConfig&, int64_t full_context, int64_t step);

// Launches clipping by the global norm, in f16 the loss scale, and AdamW with the moving average;
// of store.muon(), Muon. Reads ctx.step, writes ctx.results; may be captured. With several ranks
// and Muon, or with shards(), it is a collective over `communicator`: each rank updates its parts
// and gets all weights.
void update_parameters(Ctx&, ParameterStore&, const TrainConfig&,
                       Communicator* communicator = nullptr);
}  // namespace weft
