// SPDX-License-Identifier: MIT
// f16 and bf16 instantiations of column_forward.cuh.
#include "kernels/attention/hopper/band/column_forward.cuh"
#include "kernels/attention/launchers.h"

namespace weft::attention::hopper {

template void launch_column_forward<f16>(CudaQueue&, const AttentionForward&, const AttentionPass&);
template void launch_column_forward<bf16>(CudaQueue&, const AttentionForward&, const AttentionPass&);

}  // namespace weft::attention::hopper
