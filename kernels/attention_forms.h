// SPDX-License-Identifier: MIT
// The CUDA forms of attention, one file each, between which attention.cu chooses.
#pragma once

#include "kernels/attention.h"

namespace weft::attention {

void forward_f32(CudaQueue&, const AttentionForward&);
void forward_f16(CudaQueue&, const AttentionForward&);
void forward_bf16(CudaQueue&, const AttentionForward&);
// These need `delta`.
void backward_f32(CudaQueue&, const AttentionBackward&);
void backward_f16(CudaQueue&, const AttentionBackward&);
void backward_bf16(CudaQueue&, const AttentionBackward&);
// One form for all element types.
void decode(CudaQueue&, const AttentionDecode&);

}  // namespace weft::attention
