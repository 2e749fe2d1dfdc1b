// SPDX-License-Identifier: MIT
// f16 and bf16 instantiations of backward.cuh.
#include "kernels/attention/hopper/band/backward.cuh"
#include "kernels/attention/launchers.h"

namespace weft::attention::hopper {

template void launch_band_backward<f16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);
template void launch_band_backward<bf16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);

}  // namespace weft::attention::hopper
