// SPDX-License-Identifier: MIT
// bf16 instantiations of the forward kernel.
#include "kernels/attention_forms.h"
#include "kernels/attention_forward.cuh"

namespace weft::attention {

void forward_bf16(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  launch_forward<bf16>(queue, f, pass);
}

}  // namespace weft::attention
