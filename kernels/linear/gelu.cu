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
  const bool aligned = all_aligned(k.y, k.h, k.x, k.w);
  const LinearGeluForm form =
      choose_form(k.form, {k.x.dtype, k.x.cols(), k.w.rows(), aligned, compute_capability()});
  if (k.y.size() == 0 || form == LinearGeluForm::composed) return linear_gelu::compose(q, k);
  linear_gelu::run_hopper(q, k);
}

void run(CudaQueue& q, const LinearGeluBackward& k) {
  check(k);
  const bool aligned = all_aligned(k.dh, k.y, k.dy, k.w, k.h);
  const LinearGeluForm form =
      choose_form(k.form, {k.dy.dtype, k.dy.cols(), k.w.cols(), aligned, compute_capability()});
  if (k.dh.size() == 0 || form == LinearGeluForm::composed) return linear_gelu::compose(q, k);
  linear_gelu::run_hopper(q, k);
}

}  // namespace weft
