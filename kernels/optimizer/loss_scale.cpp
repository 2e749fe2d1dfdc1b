// SPDX-License-Identifier: MIT
// The loss scale: the definition.
#include "kernels/optimizer/loss_scale.h"

#include <cmath>

namespace weft {
void check(const ApplyLossScale& k) {
  WEFT_CHECK(k.step && k.state, "apply_loss_scale: needs StepScalars and a LossScale");
  WEFT_CHECK(k.parts >= 1, "apply_loss_scale: ", k.parts, " parts of an update");
}

void check(const UpdateLossScale& k) {
  WEFT_CHECK(k.state && k.results && k.step,
             "update_loss_scale: needs a LossScale, StepResults and StepScalars");
  WEFT_CHECK(k.window >= 1, "update_loss_scale: a window of ", k.window, " updates");
}

void compute(CpuQueue&, const ApplyLossScale& k) {
  k.step->loss_gradient = static_cast<float>(k.state->scale / static_cast<double>(k.parts));
  k.step->gradient_scale = static_cast<float>(1 / k.state->scale);
}

void compute(CpuQueue&, const UpdateLossScale& k) {
  k.state->count(std::isfinite(k.results->gradient_norm), k.window);
  k.results->loss_scale = static_cast<float>(k.state->scale);
  const int64_t applied = static_cast<int64_t>(k.step->draw) + 1 - k.state->skipped;
  set_corrections(*k.step, k.beta1, k.beta2, k.ema_decay, k.momentum, applied);
}
}  // namespace weft
