// SPDX-License-Identifier: MIT
// bf16 instantiations of the Hopper forward kernel.
#include "kernels/attention_hopper.cuh"
#include "kernels/attention_hopper_forward.cuh"

namespace weft::attention::hopper {

template void launch_forward<bf16>(CudaQueue&, const AttentionForward&, const AttentionPass&);

}  // namespace weft::attention::hopper
