// SPDX-License-Identifier: MIT
// f16 instantiations of the Hopper backward kernels.
#include "kernels/attention_hopper.cuh"
#include "kernels/attention_hopper_backward.cuh"

namespace weft::attention::hopper {

template void launch_backward<f16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);

}  // namespace weft::attention::hopper
