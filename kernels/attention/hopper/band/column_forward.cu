// SPDX-License-Identifier: MIT
// f16 and bf16 instantiations of the forward kernel for bands of any reach.
#include "kernels/attention/hopper/band/column_forward.cuh"
#include "kernels/attention/hopper/hopper.cuh"

namespace weft::attention::hopper {

template void launch_long_band_forward<f16>(CudaQueue&, const AttentionForward&, const AttentionPass&);
template void launch_long_band_forward<bf16>(CudaQueue&, const AttentionForward&, const AttentionPass&);

}  // namespace weft::attention::hopper
