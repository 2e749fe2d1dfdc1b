// SPDX-License-Identifier: MIT
// What every form of the attention kernels asks of its arguments: equal types, shapes that fit
// together.
#pragma once

#include "kernels/attention/attention.h"

namespace weft {
// `x` must be (batch, time, heads, size) of `dtype`, and have data.
void check_heads(const char* name, const HeadsView& x, int64_t batch, int64_t time, int64_t heads,
                 int64_t size, DType dtype);

// What CUDA asks besides: f32, f16 or bf16, and rows that are read in pieces of 16 bytes.
void check_cuda_dtype(DType);
void check_cuda_rows(const char* name, const HeadsView&);
}  // namespace weft
