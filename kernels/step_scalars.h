// SPDX-License-Identifier: MIT
// Every scalar that kernels read and that changes from step to step. It lives in device memory; one copy at
// the start of each step updates it. A captured CUDA graph therefore reads fresh values. None of it is ever
// a kernel argument.
#pragma once

#include <cmath>
#include <cstdint>

namespace weft {

struct StepScalars {
  std::uint64_t seed = 0;  // Philox key of all dropout masks
  std::uint64_t draw = 0;  // number of the update: each draws new masks
  // Index of this forward pass's first row (token) among the rows of the whole update, over micro-batches and
  // processes. Masks depend on that index, so they stay the same however an update is divided.
  std::int64_t first_row = 0;
  float learning_rate = 0;
  // In f16 kernels overwrite all that follows, because the device alone knows the loss scale and which
  // updates were skipped (loss_scale.h).
  float beta1_correction = 1;  // 1 - beta1^t, t = number of updates applied, this one included
  float beta2_correction = 1;  // 1 - beta2^t
  float ema_decay = 0;         // this step's decay (0: copy)
  float loss_gradient = 1;     // d(objective)/d(mean loss): loss scale / (micro-batches x processes)
  float gradient_scale = 1;    // 1 / loss scale: what gradients are multiplied with before clipping
};

// Written by kernels in device memory; of each step the host gets a copy.
struct StepResults {
  float loss = 0;           // mean nats per token of the last forward pass
  float gradient_norm = 0;  // of the whole model, after gradient_scale, before clipping
  float update_scale = 0;   // gradient_scale * min(1, clip / norm); 0 (skipped) when the norm is not finite
  float loss_scale = 0;     // in f16: behind this step
};

// The corrections of AdamW in the update that makes `updates` of them. Early on the moving average looks back
// over a tenth of the run so far, so that it forgets the initial weights.
template <class Real>  // double; a template, so that device code may call it
constexpr void set_corrections(StepScalars& s, Real beta1, Real beta2, Real ema_decay, std::int64_t updates) {
  const Real t = static_cast<Real>(updates), early = (1 + t) / (10 + t);
  s.beta1_correction = static_cast<float>(1 - std::pow(beta1, t));
  s.beta2_correction = static_cast<float>(1 - std::pow(beta2, t));
  s.ema_decay = static_cast<float>(early < ema_decay ? early : ema_decay);
}

}  // namespace weft
