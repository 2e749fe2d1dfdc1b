// SPDX-License-Identifier: MIT
// f16 and bf16 instantiations of the backward kernels.
#include "kernels/attention/ampere/backward.cuh"
#include "kernels/attention/select.h"

namespace weft::attention {

void backward_f16(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass) {
  launch_backward<f16>(queue, g, pass);
}

void backward_bf16(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass) {
  launch_backward<bf16>(queue, g, pass);
}

}  // namespace weft::attention
