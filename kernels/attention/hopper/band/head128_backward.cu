// SPDX-License-Identifier: MIT
// f16 and bf16 instantiations of head128_backward.cuh.
#include "kernels/attention/hopper/band/head128_backward.cuh"
#include "kernels/attention/launchers.h"

namespace weft::attention::hopper {

template void launch_head128_backward<f16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);
template void launch_head128_backward<bf16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);

}  // namespace weft::attention::hopper
