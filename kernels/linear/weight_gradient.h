// SPDX-License-Identifier: MIT
// dw and db of LinearBackward in one Hopper kernel (weight_gradient.cuh).
#pragma once

#include "kernels/linear/linear.h"

namespace weft::linear_rows {

// Whether it takes this case, of which dw and db are wanted: compute capability 9.0 in a build with targets
// 90a, f16 or bf16, rows of a multiple of 16 bytes.
bool covers(const CudaQueue&, const LinearBackward&);
void run_hopper(CudaQueue&, const LinearBackward&);  // dw and db

}  // namespace weft::linear_rows
