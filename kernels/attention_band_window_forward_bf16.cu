// SPDX-License-Identifier: MIT
// bf16 instantiations of the forward sweep over windows.
#include "kernels/attention_band_window_forward.cuh"
#include "kernels/attention_hopper.cuh"

namespace weft::attention::hopper {

template void launch_window_forward<bf16>(CudaQueue&, const AttentionForward&, const AttentionPass&);

}  // namespace weft::attention::hopper
