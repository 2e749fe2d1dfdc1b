// SPDX-License-Identifier: MIT
// GEMM through cuBLASLt, in that library's column-major terms. Algorithms add partial sums in a
// fixed order.
//
// Results are those of the algorithm that the library names first. On the first eager call of a
// large GEMM, candidates run on random operands in scratch memory; the fastest with the same bits
// runs from then on. Captured calls measure nothing. WEFT_TUNE=0 always takes the first.
#pragma once

#include "kernels/device/cuda.cuh"

#include <cstddef>
#include <cublasLt.h>
#include <vector>

namespace weft {
#define WEFT_CUBLAS_CHECK(statement)                                                      \
  do {                                                                                    \
    const cublasStatus_t weft_status = (statement);                                       \
    if (weft_status != CUBLAS_STATUS_SUCCESS) {                                           \
      fail("cuBLASLt: ", cublasLtGetStatusString(weft_status), "  [", #statement, " at ", \
           __FILE_NAME__, ":", __LINE__, "]");                                            \
    }                                                                                     \
  } while (0)

// out (rows, cols) = alpha op(a) op(b) + beta (accumulate: out; or addend, of out's layout), sums
// over `inner`. A batch of such GEMMs: operands of the next lie so many elements on.
struct Gemm {
  const void *a = nullptr, *b = nullptr;
  void* out = nullptr;
  const void* bias = nullptr;  // (rows), added to every column
  const void* addend = nullptr;
  float alpha = 1, beta = 1;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  int64_t rows = 0, cols = 0, inner = 0;
  int64_t batch = 1, stride_a = 0, stride_b = 0, stride_out = 0;
  DType in = DType::f32, to = DType::f32;

  double flops() const {
    return 2 * static_cast<double>(batch * rows) * static_cast<double>(cols) *
           static_cast<double>(inner);
  }
};

// False when the library has no algorithm; nothing is launched then.
bool multiply(CudaQueue&, const Gemm&);
void require_multiply(CudaQueue&, const Gemm&, const char* kernel);  // throws Error instead

// A handle of the library, destroyed with its scope.
template <class Handle, cublasStatus_t (*kDestroy)(Handle)>
struct Owned {
  Handle handle = nullptr;
  Owned() = default;
  Owned& operator=(Owned&&) = delete;  // nor copied

  ~Owned() {
    if (handle) kDestroy(handle);
  }
};

// One of the library's algorithms for a GEMM.
struct Algorithm {
  cublasLtMatmulAlgo_t value;
};

// The library's description of a GEMM.
struct GemmPlan {
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation;
  Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> a, b, out;

  explicit GemmPlan(const Gemm&);
  cublasStatus_t run(CudaQueue&, const Gemm&, const Algorithm&) const;
};

// The index of the fastest candidate with the bits of candidate 0; 0 without memory to measure.
// Waits.
std::size_t fastest_of(CudaQueue&, const Gemm&, const std::vector<Algorithm>& candidates);
}  // namespace weft
