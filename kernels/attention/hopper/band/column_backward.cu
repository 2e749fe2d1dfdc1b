// SPDX-License-Identifier: MIT
// f16 and bf16 instantiations of column_backward.cuh.
#include "kernels/attention/hopper/band/column_backward.cuh"
#include "kernels/attention/launchers.h"

namespace weft::attention::hopper {

template void launch_column_backward<f16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);
template void launch_column_backward<bf16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);

}  // namespace weft::attention::hopper
