// SPDX-License-Identifier: MIT
// f16 instantiations of the kernels for tiles of edge 16.
#include "kernels/attention_forms.h"
#include "kernels/attention_small_backward.cuh"
#include "kernels/attention_small_forward.cuh"

namespace weft::attention {

void small_forward_f16(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  launch_small_forward<f16>(queue, f, pass);
}

void small_backward_f16(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass) {
  launch_small_backward<f16>(queue, g, pass);
}

}  // namespace weft::attention
