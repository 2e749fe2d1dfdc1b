// SPDX-License-Identifier: MIT
// AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101, algorithm 2) over the whole model in one launch:
//   g = update_scale * gradient
//   m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
//   p = p - lr * ( (m / c1) / (sqrt(v / c2) + eps) + decay * p )
//   ema = ema_decay * ema + (1 - ema_decay) p
// and the low-precision copy of p in the same pass. decay is 0 from element `decayed` on. When
// results->update_scale is 0 (a gradient was not finite), nothing changes.
#pragma once

#include "kernels/step_scalars.h"
#include "kernels/queue.h"

namespace weft {

struct AdamWUpdate {
  static constexpr const char* kName = "adamw_update";
  TensorView master, m, v;   // flat (P), wide type
  TensorView ema;            // flat (P), wide type, or absent
  TensorView compute;        // flat (P), T, or absent (f32: the master is the compute copy)
  TensorView gradients;      // flat (P), wide type
  std::int64_t decayed = 0;  // the first `decayed` elements get weight decay
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.01;
  const StepScalars* step = nullptr;
  const StepResults* results = nullptr;
  std::vector<TensorView> outputs() const { return {master, m, v, ema, compute}; }
  std::vector<TensorView> inputs() const { return {master, m, v, ema, gradients}; }
};
void check(const AdamWUpdate&);  // shapes and types; both forms begin with it
void run(CpuQueue&, const AdamWUpdate&);
void run(CudaQueue&, const AdamWUpdate&);

}  // namespace weft
