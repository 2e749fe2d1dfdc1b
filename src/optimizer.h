// SPDX-License-Identifier: MIT
// What happens after the backward pass: clip, AdamW, EMA, and the schedules that feed StepScalars.
#pragma once

#include "src/config/config.h"
#include "src/parameters.h"

namespace weft {

// Learning rate of update `step` (0-based): linear warm-up to `learning_rate`, then cosine or linear decay to
// final_learning_rate * learning_rate at the last step, or constant.
double learning_rate(const TrainConfig&, std::int64_t step);

// Context length in force at `step`.
std::int64_t context_at(const TrainConfig&, std::int64_t full_context, std::int64_t step);

// Launches clip and update, and in between, with ctx.loss_scale, what decides of the loss scale; reads
// ctx.step, writes ctx.results. Capturable. Of a store with shards():
// collective over `communicator`; gradients are complete in this process's parts, and every rank gets all
// weights as kernels read them.
void update_parameters(Ctx&, ParameterStore&, const TrainConfig&, Communicator* communicator = nullptr);

// Dynamic loss scaling (kernels/optimizer/loss_scale.h) as the host follows it: halve and retry when a
// gradient is not finite, double after `window` good steps.
struct LossScaler {
  double scale = 1;
  std::int64_t good_steps = 0;
  std::int64_t window = 1000;
  bool enabled = false;
  // Takes the norm of a step; returns true when the step was applied, false when it must be run again.
  bool update(float gradient_norm);
};

}  // namespace weft
