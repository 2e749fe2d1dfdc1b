// SPDX-License-Identifier: MIT
// Dynamic loss scaling (Micikevicius et al. 2018, arXiv 1710.03740, section 3.2). An update whose
// gradient overflows is skipped, and halves the scale. The device decides, so the host never waits.
#pragma once

#include "kernels/queue.h"
#include "kernels/step_scalars.h"

namespace weft {
struct LossScale {
  double scale = 1;
  int64_t good_steps = 0;  // updates applied since the scale changed
  int64_t skipped = 0;     // updates skipped since the start of training

  // Halves the scale when a gradient is not finite, doubles it after `window` updates that were
  // applied.
  constexpr void count(bool finite, int64_t window) {
    skipped += finite ? 0 : 1;
    if (finite && ++good_steps < window) return;
    scale = finite ? scale * 2 : scale / 2;
    good_steps = 0;
  }
};

// Runs before the backward pass: loss_gradient = scale / parts, gradient_scale = 1 / scale.
struct ApplyLossScale {
  static constexpr const char* kName = "apply_loss_scale";
  StepScalars* step = nullptr;
  const LossScale* state = nullptr;
  int64_t parts = 1;  // micro-batches x processes
};

WEFT_KERNEL(ApplyLossScale);

// Runs between ClipCoefficient, which sets update_scale to 0 to skip an update, and AdamW. Writes
// the scale to results->loss_scale. Writes to *step what depends on the number of applied updates:
// AdamW's corrections and the momentum of matrices.
struct UpdateLossScale {
  static constexpr const char* kName = "update_loss_scale";
  LossScale* state = nullptr;
  StepResults* results = nullptr;
  StepScalars* step = nullptr;
  int64_t window = 1000;
  double beta1 = 0.9, beta2 = 0.95, ema_decay = 0, momentum = 0;
};

WEFT_KERNEL(UpdateLossScale);
}  // namespace weft
