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

__global__ void update(const UpdateLossScale k) {
  LossScale s = *k.state;
  s.count(isfinite(k.results->gradient_norm), k.window);
  *k.state = s;
  k.results->loss_scale = static_cast<float>(s.scale);
  const int64_t applied = static_cast<int64_t>(k.step->draw) + 1 - s.skipped;
  set_corrections(*k.step, k.beta1, k.beta2, k.ema_decay, k.momentum, applied);
}
}  // namespace

void compute(CudaQueue& q, const ApplyLossScale& k) {
  apply<<<1, 1, 0, q.stream>>>(k.step, k.state, static_cast<double>(k.parts));
}

void compute(CudaQueue& q, const UpdateLossScale& k) { update<<<1, 1, 0, q.stream>>>(k); }
}  // namespace weft
