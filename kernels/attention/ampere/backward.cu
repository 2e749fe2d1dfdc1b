// SPDX-License-Identifier: MIT
// f16 and bf16 instantiations of the backward kernels.
#include "kernels/attention/ampere/backward.cuh"
#include "kernels/attention/launchers.h"

namespace weft::attention::ampere {

template void launch_backward<f16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);
template void launch_backward<bf16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);

}  // namespace weft::attention::ampere
