// SPDX-License-Identifier: MIT
// f16 and bf16 instantiations of forward.cuh.
#include "kernels/attention/hopper/band/forward.cuh"
#include "kernels/attention/launchers.h"

namespace weft::attention::hopper {

template void launch_band_forward<f16>(CudaQueue&, const AttentionForward&, const AttentionPass&);
template void launch_band_forward<bf16>(CudaQueue&, const AttentionForward&, const AttentionPass&);

}  // namespace weft::attention::hopper
