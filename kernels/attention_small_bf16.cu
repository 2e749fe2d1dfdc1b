// SPDX-License-Identifier: MIT
// bf16 instantiations of the kernels for tiles of edge 16.
#include "kernels/attention_forms.h"
#include "kernels/attention_small_backward.cuh"
#include "kernels/attention_small_forward.cuh"

namespace weft::attention {

void small_forward_bf16(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  launch_small_forward<bf16>(queue, f, pass);
}

void small_backward_bf16(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass) {
  launch_small_backward<bf16>(queue, g, pass);
}

}  // namespace weft::attention
