// SPDX-License-Identifier: MIT
// The forms of LinearGelu and LinearBackward: composed of other kernels, or kernels for Hopper.
#pragma once

#include "kernels/layers/pointwise.h"
#include "kernels/linear/gelu.h"
#include "kernels/linear/linear.h"

namespace weft {
namespace linear_gelu {

template <class AnyQueue>
void compose(AnyQueue& q, const LinearGeluForward& k) {
  const TensorView h = k.h ? k.h : k.y;
  run(q, LinearForward{.y = h, .x = k.x, .w = k.w, .b = {}});
  run(q, GeluForward{.y = k.y, .x = h, .bias = k.b});
}
template <class AnyQueue>
void compose(AnyQueue& q, const LinearGeluBackward& k) {
  const GradView dh = {k.dh, false};  // first holds dy w
  run(q, LinearBackward{.dx = dh, .dw = {}, .db = {}, .dy = k.dy, .x = k.h, .w = k.w});
  run(q, GeluBackward{.dx = dh, .dy = k.dh, .x = k.h, .dbias = k.db, .bias = k.b});
  if (k.y) run(q, GeluForward{.y = k.y, .x = k.h, .bias = k.b});
}

// For the cases that choose_form() gives this form.
void run_hopper(CudaQueue&, const LinearGeluForward&);
void run_hopper(CudaQueue&, const LinearGeluBackward&);

}  // namespace linear_gelu
namespace linear_rows {

// Whether it takes this case, of which dw and db are wanted.
bool covers(const CudaQueue&, const LinearBackward&);
void run_hopper(CudaQueue&, const LinearBackward&);

}  // namespace linear_rows
}  // namespace weft
