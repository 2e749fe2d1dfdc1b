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

void run(CpuQueue&, const ApplyLossScale& k) {
  check(k);
  k.step->loss_gradient = static_cast<float>(k.state->scale / static_cast<double>(k.parts));
  k.step->gradient_scale = static_cast<float>(1 / k.state->scale);
}

void run(CpuQueue&, const UpdateLossScale& k) {
  check(k);
  LossScale& state = *k.state;
  if (state.next != LossScale::kEvery) {
    if (k.step->draw != static_cast<std::uint64_t>(state.next)) {
      k.results->update_scale = 0;
      k.results->loss_scale = 0;
      return;
    }
    const bool finite = std::isfinite(k.results->gradient_norm);
    state.count(finite, k.window);
    if (finite) ++state.next;
  }
  k.results->loss_scale = static_cast<float>(state.scale);
}

}  // namespace weft
