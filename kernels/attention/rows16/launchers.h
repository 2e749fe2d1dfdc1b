// SPDX-License-Identifier: MIT
// The launchers of the kernels over tiles of 16 rows.
#pragma once

#include "kernels/attention/attention.h"

namespace weft::attention::ampere {
void launch_rows16_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
void launch_rows16_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
}  // namespace weft::attention::ampere
