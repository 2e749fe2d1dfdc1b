// SPDX-License-Identifier: MIT
// f16 and bf16 instantiations of the forward kernel.
#include "kernels/attention/ampere/forward.cuh"
#include "kernels/attention/select.h"

namespace weft::attention {

void forward_f16(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  launch_forward<f16>(queue, f, pass);
}

void forward_bf16(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  launch_forward<bf16>(queue, f, pass);
}

}  // namespace weft::attention
