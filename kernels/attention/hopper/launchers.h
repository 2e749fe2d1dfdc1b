// SPDX-License-Identifier: MIT
// The launchers of the kernels of this folder, one for each Kernel (kernels/attention/select.h).
#pragma once

#include "kernels/attention/attention.h"

namespace weft::attention {
namespace hopper {
void launch_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
void launch_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
void launch_fused_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
void launch_band_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
void launch_band_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
void launch_head128_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
void launch_window_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
void launch_window_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
void launch_column_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
void launch_column_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
}  // namespace hopper
}  // namespace weft::attention
