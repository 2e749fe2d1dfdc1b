// SPDX-License-Identifier: MIT
// f16 and bf16 instantiations of the kernels for tiles of edge 16.
#include "kernels/attention/ampere/rows16_backward.cuh"
#include "kernels/attention/ampere/rows16_forward.cuh"
#include "kernels/attention/launchers.h"

namespace weft::attention::ampere {

template void launch_rows16_forward<f16>(CudaQueue&, const AttentionForward&, const AttentionPass&);
template void launch_rows16_forward<bf16>(CudaQueue&, const AttentionForward&, const AttentionPass&);
template void launch_rows16_backward<f16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);
template void launch_rows16_backward<bf16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);

}  // namespace weft::attention::ampere
