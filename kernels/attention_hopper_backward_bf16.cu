// SPDX-License-Identifier: MIT
// bf16 instantiations of the Hopper backward kernels.
#include "kernels/attention_hopper.cuh"
#include "kernels/attention_hopper_backward.cuh"

namespace weft::attention::hopper {

template void launch_backward<bf16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);

}  // namespace weft::attention::hopper
