// SPDX-License-Identifier: MIT
// f16 instantiations of the forward kernel.
#include "kernels/attention_forms.h"
#include "kernels/attention_forward.cuh"

namespace weft::attention {

void forward_f16(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  launch_forward<f16>(queue, f, pass);
}

}  // namespace weft::attention
