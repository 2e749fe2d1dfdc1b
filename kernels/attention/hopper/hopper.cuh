// SPDX-License-Identifier: MIT
// The Hopper form of attention: sm_90, f16 and bf16.
#pragma once

#include "kernels/attention/attention.h"

namespace weft::attention::hopper {

template <class T>
void launch_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
// The sweep of a pass that is a band; false: nothing is done, the copy engine does not take these strides.
template <class T>
bool launch_band_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
// Of windows of more rows than the sweep takes.
template <class T>
void launch_window_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
// Of a band of any reach.
template <class T>
void launch_long_band_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
template <class T>
void launch_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
template <class T>
void launch_band_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
// Of a band whose queries see three key tiles, heads up to 128.
template <class T>
void launch_wide_band_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
// Of windows of more rows than the sweep takes, as the first pass.
template <class T>
void launch_window_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
// Of whole columns, with columns_scratch().
template <class T>
void launch_long_band_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);

}  // namespace weft::attention::hopper
