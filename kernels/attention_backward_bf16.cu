// SPDX-License-Identifier: MIT
// bf16 instantiations of the backward kernels.
#include "kernels/attention_backward.cuh"
#include "kernels/attention_forms.h"

namespace weft::attention {

void backward_bf16(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass) {
  launch_backward<bf16>(queue, g, pass);
}

}  // namespace weft::attention
