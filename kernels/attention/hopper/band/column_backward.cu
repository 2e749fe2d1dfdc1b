// SPDX-License-Identifier: MIT
// f16 and bf16 instantiations of the backward kernel for whole columns.
#include "kernels/attention/hopper/band/column_backward.cuh"
#include "kernels/attention/hopper/hopper.cuh"

namespace weft::attention::hopper {

template void launch_long_band_backward<f16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);
template void launch_long_band_backward<bf16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);

}  // namespace weft::attention::hopper
