// SPDX-License-Identifier: MIT
// bf16 instantiations of the forward kernel for bands of any reach.
#include "kernels/attention_band_long_forward.cuh"
#include "kernels/attention_hopper.cuh"

namespace weft::attention::hopper {

template void launch_long_band_forward<bf16>(CudaQueue&, const AttentionForward&, const AttentionPass&);

}  // namespace weft::attention::hopper
