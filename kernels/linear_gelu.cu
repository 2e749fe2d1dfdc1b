// SPDX-License-Identifier: MIT
// Projection and GELU in one on CUDA.
#include "kernels/cuda.cuh"
#include "kernels/linear.h"
#include "kernels/linear_gelu.h"
#include "kernels/pointwise.h"

namespace weft {

void run(CudaQueue& q, const LinearGeluForward& k) {
  check(k);
  const TensorView h = k.h ? k.h : k.y;
  run(q, LinearForward{.y = h, .x = k.x, .w = k.w, .b = {}});
  run(q, GeluForward{.y = k.y, .x = h, .bias = k.b});
}

void run(CudaQueue& q, const LinearGeluBackward& k) {
  check(k);
  const GradView dh = {k.dh, false};
  run(q, LinearBackward{.dx = dh, .dw = {}, .db = {}, .dy = k.dy, .x = k.h, .w = k.w});
  run(q, GeluBackward{.dx = dh, .dy = k.dh, .x = k.h, .dbias = k.db, .bias = k.b});
  if (k.y) run(q, GeluForward{.y = k.y, .x = k.h, .bias = k.b});
}

}  // namespace weft
