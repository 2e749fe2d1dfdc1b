// SPDX-License-Identifier: MIT
// f16 and bf16 instantiations of the forward kernel.
#include "kernels/attention/ampere/forward.cuh"
#include "kernels/attention/launchers.h"

namespace weft::attention::ampere {

template void launch_forward<f16>(CudaQueue&, const AttentionForward&, const AttentionPass&);
template void launch_forward<bf16>(CudaQueue&, const AttentionForward&, const AttentionPass&);

}  // namespace weft::attention::ampere
