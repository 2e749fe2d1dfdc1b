// SPDX-License-Identifier: MIT
// The forms of LinearActivation and LinearBackward: composed of other kernels, or kernels for
// Hopper.
#pragma once

#include "kernels/layers/pointwise.h"
#include "kernels/linear/activation.h"
#include "kernels/linear/linear.h"

namespace weft {
namespace linear_activation {
template <class AnyQueue>
void compose(AnyQueue& q, const LinearActivationForward& k) {
  const TensorView h = k.h ? k.h : k.y;
  run(q, LinearForward{.y = h, .x = k.x, .w = k.w, .b = {}});
  run(q, ActivationForward{.y = k.y, .x = h, .bias = k.b, .f = k.f});
}

template <class AnyQueue>
void compose(AnyQueue& q, const LinearActivationBackward& k) {
  const GradView dh = {k.dh, false};  // first holds dy w
  run(q, LinearBackward{.dx = dh, .dw = {}, .db = {}, .dy = k.dy, .x = k.h, .w = k.w});
  run(q, ActivationBackward{.dx = dh, .dy = k.dh, .x = k.h, .dbias = k.db, .bias = k.b, .f = k.f});
  if (k.y) run(q, ActivationForward{.y = k.y, .x = k.h, .bias = k.b, .f = k.f});
}

// For the cases that choose_form() gives this form.
void run_hopper(CudaQueue&, const LinearActivationForward&);
void run_hopper(CudaQueue&, const LinearActivationBackward&);
}  // namespace linear_activation

namespace linear_rows {
// Whether it takes this case, of which dw and db are wanted.
bool covers(const CudaQueue&, const LinearBackward&);
void run_hopper(CudaQueue&, const LinearBackward&);
}  // namespace linear_rows
}  // namespace weft
