// SPDX-License-Identifier: MIT
// The affine map of LinearForward::batch_invariant on CUDA.
#pragma once

#include "kernels/cuda.cuh"
#include "kernels/linear.h"

namespace weft {

// y = x w^T + b; the order in which a row is summed depends on K alone.
void linear_rows(CudaQueue&, const LinearForward&);

// y += b, row by row: for shapes that the matrix library's own bias epilogue does not take.
void add_bias(CudaQueue&, const TensorView& y, const TensorView& b);

}  // namespace weft
