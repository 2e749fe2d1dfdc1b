// SPDX-License-Identifier: MIT
// The scalars that change from step to step. Kernels read them from device memory, never from
// arguments. One copy at the start of a step updates them, so a captured CUDA graph reads fresh
// ones.
#pragma once

#include <cmath>
#include <cstdint>

namespace weft {
struct StepScalars {
  uint64_t seed = 0;  // Philox key of all dropout masks
  uint64_t draw = 0;  // number of the update: each draws new masks
  // Index in the update of this pass's first row (token). With it, masks do not depend on how an
  // update is divided into micro-batches.
  int64_t first_row = 0;
  float learning_rate = 0;
  float matrix_learning_rate = 0;  // of an optimizer of matrices
  // In f16, kernels overwrite all fields below (loss_scale.h).
  float beta1_correction = 1;  // 1 - beta1^t, t = number of updates applied, this one included
  float beta2_correction = 1;  // 1 - beta2^t
  float ema_decay = 0;         // this step's decay (0: copy)
  // d(objective)/d(mean loss): loss scale / (micro-batches x processes)
  float loss_gradient = 1;
  float gradient_scale = 1;  // 1 / loss scale: what gradients are multiplied with before clipping
  float momentum = 0;        // of an optimizer of matrices, in this update
};

// Written by kernels in device memory; the host gets a copy each step.
struct StepResults {
  float loss = 0;           // mean nats per token of the last forward pass
  float gradient_norm = 0;  // of the whole model, after gradient_scale, before clipping
  // gradient_scale * min(1, clip / norm); 0 (skipped) when the norm is not finite
  float update_scale = 0;
  float loss_scale = 0;  // in f16: behind this step
};

// Sets what follows from the number of updates applied. AdamW: 1 - beta^updates. The moving average
// starts with a decay that looks back over a tenth of the run. The momentum of matrices grows from
// 0.85 to `momentum` within 300 updates.
template <class Real>  // double; a template, so that device code may call it
constexpr void set_corrections(StepScalars& s, Real beta1, Real beta2, Real ema_decay,
                               Real momentum, int64_t updates) {
  const Real t = static_cast<Real>(updates), early = (1 + t) / (10 + t);
  s.beta1_correction = static_cast<float>(1 - std::pow(beta1, t));
  s.beta2_correction = static_cast<float>(1 - std::pow(beta2, t));
  s.ema_decay = static_cast<float>(early < ema_decay ? early : ema_decay);
  const Real first = momentum < Real(0.85) ? momentum : Real(0.85),
             grown = t < 301 ? (t - 1) / 300 : Real(1);
  s.momentum = static_cast<float>(first + grown * (momentum - first));
}
}  // namespace weft
