// SPDX-License-Identifier: MIT
// f16 and bf16 instantiations of the forward kernel for bands.
#include "kernels/attention/hopper/band/forward.cuh"
#include "kernels/attention/hopper/hopper.cuh"

namespace weft::attention::hopper {

template bool launch_band_forward<f16>(CudaQueue&, const AttentionForward&, const AttentionPass&);
template bool launch_band_forward<bf16>(CudaQueue&, const AttentionForward&, const AttentionPass&);

}  // namespace weft::attention::hopper
