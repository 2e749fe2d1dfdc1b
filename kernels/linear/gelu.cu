// SPDX-License-Identifier: MIT
// GEMM and GELU in one on CUDA: which form runs.
#include "kernels/device/cuda.cuh"
#include "kernels/linear/forms.h"

namespace weft {
namespace {

template <class... Views>
bool all_aligned(const Views&... views) {
  return (aligned16(views) && ...);
}

}  // namespace

void run(CudaQueue& q, const LinearGeluForward& k) {
  check(k);
  const LinearGeluForm form = choose_form(k.form, {.dtype = k.x.dtype,
                                                   .inner = k.x.cols(),
                                                   .cols = k.w.rows(),
                                                   .aligned = all_aligned(k.y, k.h, k.x, k.w),
                                                   .compute_capability = compute_capability()});
  if (k.y.size() == 0 || form == LinearGeluForm::composed) return linear_gelu::compose(q, k);
  linear_gelu::run_hopper(q, k);
}

void run(CudaQueue& q, const LinearGeluBackward& k) {
  check(k);
  const LinearGeluForm form = choose_form(k.form, {.dtype = k.dy.dtype,
                                                   .inner = k.dy.cols(),
                                                   .cols = k.w.cols(),
                                                   .aligned = all_aligned(k.dh, k.y, k.dy, k.w, k.h),
                                                   .compute_capability = compute_capability()});
  if (k.dh.size() == 0 || form == LinearGeluForm::composed) return linear_gelu::compose(q, k);
  linear_gelu::run_hopper(q, k);
}

}  // namespace weft
