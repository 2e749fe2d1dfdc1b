// SPDX-License-Identifier: MIT
// The launchers of the CUDA kernels of attention that every build with CUDA has.
#pragma once

#include "kernels/attention/attention.h"

namespace weft::attention {
// AttentionBackward::delta of all rows, for kernels that read it.
void write_delta(CudaQueue&, const AttentionBackward&);

namespace simple {
void launch_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
void launch_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
}  // namespace simple

namespace ampere {
void launch_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
void launch_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
}  // namespace ampere

}  // namespace weft::attention
