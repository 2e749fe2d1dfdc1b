// SPDX-License-Identifier: MIT
// AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101, algorithm 2) over all parameters of the model
// at once:
//   g = update_scale * gradient
//   m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
//   c1 = 1 - beta1^t,   c2 = 1 - beta2^t,   t: updates applied, this one included
//   p = p - learning_rate * ( (m / c1) / (sqrt(v / c2) + eps) + weight_decay * p )
//   ema = ema_decay * ema + (1 - ema_decay) p
// The same pass writes the low-precision copy of p that the next forward pass reads.
#pragma once

#include "kernels/queue.h"
#include "kernels/step_scalars.h"

#include <vector>

namespace weft {
struct AdamWUpdate {
  static constexpr const char* kName = "adamw_update";
  TensorView master, m, v;  // (P)  f32, in f64 tests f64: p and its two moments, read and written
  TensorView ema;           // (P)  as master, read and written; or absent
  TensorView compute;       // (P)  T, written; or absent where the model computes in master's type
  TensorView gradients;     // (P)  as master
  int64_t decayed = 0;      // weight_decay is that of the first `decayed` elements, 0 of the others
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.01;
  const StepScalars* step = nullptr;     // in the queue's memory: learning_rate, c1, c2, ema_decay
  const StepResults* results = nullptr;  // in the queue's memory: update_scale; 0 changes nothing

  std::vector<TensorView> outputs() const { return {master, m, v, ema, compute}; }

  std::vector<TensorView> inputs() const { return {master, m, v, ema, gradients}; }
};

WEFT_KERNEL(AdamWUpdate);
}  // namespace weft
