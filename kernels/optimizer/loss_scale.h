// SPDX-License-Identifier: MIT
// Dynamic loss scaling (Micikevicius et al. 2018, arXiv 1710.03740, section 3.2), decided where the gradients
// are: updates may then be launched before the host knows whether those ahead of them were applied.
#pragma once

#include "kernels/queue.h"
#include "kernels/step_scalars.h"

namespace weft {

struct LossScale {
  static constexpr std::int64_t kEvery = -1;

  double scale = 1;
  std::int64_t good_steps = 0;  // updates applied since the scale changed
  std::int64_t next = kEvery;   // number of the update that is due; kEvery: each, and the scale stays

  // Halved when a gradient is not finite, doubled after `window` updates that were applied.
  constexpr void count(bool finite, std::int64_t window) {
    if (finite && ++good_steps < window) return;
    scale = finite ? scale * 2 : scale / 2;
    good_steps = 0;
  }
};

// What a backward pass and the clipping behind it need of the scale, each rounded once from f64:
//   loss_gradient = scale / parts,   gradient_scale = 1 / scale
struct ApplyLossScale {
  static constexpr const char* kName = "apply_loss_scale";
  StepScalars* step = nullptr;
  const LossScale* state = nullptr;
  std::int64_t parts = 1;  // micro-batches x processes
};
void check(const ApplyLossScale&);  // both forms begin with it
void run(CpuQueue&, const ApplyLossScale&);
void run(CudaQueue&, const ApplyLossScale&);

// Behind ClipCoefficient, before anything is updated. When update step->draw is due, the scale is counted on,
// and if its gradient_norm is finite the next one is due. When it is not, because one before it has to be run
// again, update_scale becomes 0 and the state stays. results->loss_scale: as LossScale has it now, 0 for an
// update that was not due.
struct UpdateLossScale {
  static constexpr const char* kName = "update_loss_scale";
  LossScale* state = nullptr;
  StepResults* results = nullptr;
  const StepScalars* step = nullptr;
  std::int64_t window = 1000;
};
void check(const UpdateLossScale&);  // both forms begin with it
void run(CpuQueue&, const UpdateLossScale&);
void run(CudaQueue&, const UpdateLossScale&);

}  // namespace weft
