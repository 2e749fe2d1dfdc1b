// SPDX-License-Identifier: MIT
// f16 and bf16 instantiations of the kernels for tiles of edge 16.
#include "kernels/attention/ampere/rows16_backward.cuh"
#include "kernels/attention/ampere/rows16_forward.cuh"
#include "kernels/attention/select.h"

namespace weft::attention {

void small_forward_f16(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  launch_small_forward<f16>(queue, f, pass);
}

void small_backward_f16(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass) {
  launch_small_backward<f16>(queue, g, pass);
}

void small_forward_bf16(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  launch_small_forward<bf16>(queue, f, pass);
}

void small_backward_bf16(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass) {
  launch_small_backward<bf16>(queue, g, pass);
}

}  // namespace weft::attention
