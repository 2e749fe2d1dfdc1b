// SPDX-License-Identifier: MIT
// GEMM and GELU in one on CUDA: which form runs, and the form that is composed of other kernels.
#include "kernels/device/cuda.cuh"
#include "kernels/layers/pointwise.h"
#include "kernels/linear/gelu.h"
#include "kernels/linear/gelu_hopper.h"
#include "kernels/linear/linear.h"

namespace weft {
namespace {

template <class... Views>
bool all_aligned(const Views&... views) {
  return (aligned16(views) && ...);
}

void compose(CudaQueue& q, const LinearGeluForward& k) {
  const TensorView h = k.h ? k.h : k.y;
  run(q, LinearForward{.y = h, .x = k.x, .w = k.w, .b = {}});
  run(q, GeluForward{.y = k.y, .x = h, .bias = k.b});
}

// dh first holds dy w.
void compose(CudaQueue& q, const LinearGeluBackward& k) {
  const GradView dh = {k.dh, false};
  run(q, LinearBackward{.dx = dh, .dw = {}, .db = {}, .dy = k.dy, .x = k.h, .w = k.w});
  run(q, GeluBackward{.dx = dh, .dy = k.dh, .x = k.h, .dbias = k.db, .bias = k.b});
  if (k.y) run(q, GeluForward{.y = k.y, .x = k.h, .bias = k.b});
}

}  // namespace

void run(CudaQueue& q, const LinearGeluForward& k) {
  check(k);
  const LinearGeluForm form = choose_form(k.form, {.dtype = k.x.dtype,
                                                   .inner = k.x.cols(),
                                                   .cols = k.w.rows(),
                                                   .aligned = all_aligned(k.y, k.h, k.x, k.w),
                                                   .compute_capability = compute_capability()});
  if (k.y.size() == 0 || form == LinearGeluForm::composed) return compose(q, k);
  linear_gelu::run_hopper(q, k);
}

void run(CudaQueue& q, const LinearGeluBackward& k) {
  check(k);
  const LinearGeluForm form = choose_form(k.form, {.dtype = k.dy.dtype,
                                                   .inner = k.dy.cols(),
                                                   .cols = k.w.cols(),
                                                   .aligned = all_aligned(k.dh, k.y, k.dy, k.w, k.h),
                                                   .compute_capability = compute_capability()});
  if (k.dh.size() == 0 || form == LinearGeluForm::composed) return compose(q, k);
  linear_gelu::run_hopper(q, k);
}

}  // namespace weft
