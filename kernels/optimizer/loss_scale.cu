// SPDX-License-Identifier: MIT
// The loss scale on CUDA: a thread.
#include "kernels/device/cuda.cuh"
#include "kernels/optimizer/loss_scale.h"

namespace weft {
namespace {

__global__ void apply(StepScalars* step, const LossScale* state, double parts) {
  const double scale = state->scale;
  step->loss_gradient = static_cast<float>(scale / parts);
  step->gradient_scale = static_cast<float>(1.0 / scale);
}

__global__ void update(LossScale* state, StepResults* results, const StepScalars* step, std::int64_t window) {
  LossScale s = *state;
  if (s.next != LossScale::kEvery) {
    if (step->draw != static_cast<std::uint64_t>(s.next)) {
      results->update_scale = 0.0f;
      results->loss_scale = 0.0f;
      return;
    }
    const bool finite = isfinite(results->gradient_norm);
    s.count(finite, window);
    if (finite) ++s.next;
    *state = s;
  }
  results->loss_scale = static_cast<float>(s.scale);
}

}  // namespace

void run(CudaQueue& q, const ApplyLossScale& k) {
  check(k);
  apply<<<1, 1, 0, q.stream>>>(k.step, k.state, static_cast<double>(k.parts));
}

void run(CudaQueue& q, const UpdateLossScale& k) {
  check(k);
  update<<<1, 1, 0, q.stream>>>(k.state, k.results, k.step, k.window);
}

}  // namespace weft
