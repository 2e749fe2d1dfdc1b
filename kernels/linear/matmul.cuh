// SPDX-License-Identifier: MIT
// GEMM through cuBLASLt, in that library's column-major terms. Only algorithms that add partial sums in a
// fixed order are taken. The library's first choice runs.
#pragma once

#include <cublasLt.h>

#include "kernels/device/cuda.cuh"

namespace weft {

#define WEFT_CUBLAS_CHECK(statement)                                                                         \
  do {                                                                                                       \
    const cublasStatus_t weft_status = (statement);                                                          \
    if (weft_status != CUBLAS_STATUS_SUCCESS) {                                                              \
      fail(str("cuBLASLt: ", cublasLtGetStatusString(weft_status), "  [", #statement, " at ", __FILE_NAME__, \
               ":", __LINE__, "]"));                                                                         \
    }                                                                                                        \
  } while (0)

// out (rows, cols) = op(a) op(b) + (accumulate: out), sums over `inner`.
struct Gemm {
  const void *a = nullptr, *b = nullptr;
  void* out = nullptr;
  const void* bias = nullptr;  // (rows), added to every column
  bool transpose_a = false, transpose_b = false, accumulate = false;
  std::int64_t rows = 0, cols = 0, inner = 0;
  DType in = DType::f32, to = DType::f32;
};

// False when the library has no algorithm; nothing is launched then.
bool multiply(CudaQueue&, const Gemm&);

}  // namespace weft
