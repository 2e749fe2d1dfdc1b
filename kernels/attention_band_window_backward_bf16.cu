// SPDX-License-Identifier: MIT
// bf16 instantiations of the backward sweep over windows.
#include "kernels/attention_band_window_backward.cuh"
#include "kernels/attention_hopper.cuh"

namespace weft::attention::hopper {

template void launch_window_backward<bf16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);

}  // namespace weft::attention::hopper
