// SPDX-License-Identifier: MIT
// f16 instantiations of the backward sweep with wide heads.
#include "kernels/attention_band_wide_backward.cuh"
#include "kernels/attention_hopper.cuh"

namespace weft::attention::hopper {

template void launch_wide_band_backward<f16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);

}  // namespace weft::attention::hopper
