// SPDX-License-Identifier: MIT
// bf16 instantiations of the backward kernel for whole columns.
#include "kernels/attention_band_long_backward.cuh"
#include "kernels/attention_hopper.cuh"

namespace weft::attention::hopper {

template void launch_long_band_backward<bf16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);

}  // namespace weft::attention::hopper
