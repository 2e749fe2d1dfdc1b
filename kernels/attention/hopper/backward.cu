// SPDX-License-Identifier: MIT
// f16 and bf16 instantiations of the Hopper backward kernels.
#include "kernels/attention/hopper/backward.cuh"
#include "kernels/attention/hopper/hopper.cuh"

namespace weft::attention::hopper {

template void launch_backward<f16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);
template void launch_backward<bf16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);

}  // namespace weft::attention::hopper
