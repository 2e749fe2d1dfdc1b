// SPDX-License-Identifier: MIT
// The launchers of the CUDA kernels of attention, one for each Kernel (select.h). T is f16 or bf16.
#pragma once

#include "kernels/attention/attention.h"

namespace weft::attention {

namespace simple {
void launch_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
void launch_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
}  // namespace simple

namespace ampere {
template <class T>
void launch_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
template <class T>
void launch_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
template <class T>
void launch_rows16_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
template <class T>
void launch_rows16_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
}  // namespace ampere

namespace hopper {
template <class T>
void launch_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
template <class T>
void launch_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
template <class T>
void launch_fused_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
template <class T>
void launch_band_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
template <class T>
void launch_band_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
template <class T>
void launch_head128_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
template <class T>
void launch_window_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
template <class T>
void launch_window_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
template <class T>
void launch_column_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
template <class T>
void launch_column_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
}  // namespace hopper

}  // namespace weft::attention
