// SPDX-License-Identifier: MIT
// GEMM and activation in one on CUDA: which form runs.
#include "kernels/device/cuda.cuh"
#include "kernels/linear/forms.h"

namespace weft {
void compute(CudaQueue& q, const LinearActivationForward& k) {
  const bool aligned = aligned16(k.y, k.h, k.x, k.w);
  const LinearActivationForm form =
      choose_form(k.form, {k.x.dtype, k.x.cols(), k.w.rows(), aligned, compute_capability()});
  if (k.y.size() == 0 || form == LinearActivationForm::composed)
    return linear_activation::compose(q, k);
  linear_activation::run_hopper(q, k);
}

void compute(CudaQueue& q, const LinearActivationBackward& k) {
  const bool aligned = aligned16(k.dh, k.y, k.dy, k.w, k.h);
  const LinearActivationForm form =
      choose_form(k.form, {k.dy.dtype, k.dy.cols(), k.w.cols(), aligned, compute_capability()});
  if (k.dh.size() == 0 || form == LinearActivationForm::composed)
    return linear_activation::compose(q, k);
  linear_activation::run_hopper(q, k);
}
}  // namespace weft
