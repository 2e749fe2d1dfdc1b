// SPDX-License-Identifier: MIT
// Affine map on CUDA: GEMMs through cuBLASLt (matmul.cuh), which is column-major and therefore gets
// y = x w^T as y^T = w x^T. On Hopper one kernel of our own computes dw and db
// (weight_gradient.cu).
#include "kernels/device/column_sums.cuh"
#include "kernels/linear/forms.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/matmul.cuh"
#include "kernels/sampling/decode_linear.h"

#include <cstddef>

namespace weft {
namespace {
constexpr int kThreads = 256;

// out^T = op(a) op(b): a row-major (R, C) matrix is a column-major (C, R) one.
Gemm gemm_of(const GradView& out, const TensorView& a, bool transpose_a, const TensorView& b,
             bool transpose_b) {
  Gemm p;
  p.a = a.data, p.b = b.data, p.out = out.view.data;
  p.transpose_a = transpose_a, p.transpose_b = transpose_b, p.accumulate = out.accumulate;
  p.rows = transpose_a ? a.rows() : a.cols();
  p.inner = transpose_a ? a.cols() : a.rows();
  p.cols = transpose_b ? b.cols() : b.rows();
  p.in = a.dtype, p.to = out.view.dtype;
  return p;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    bias_rows(T* y, const T* b, int64_t size, int64_t cols) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < size) y[i] = from_float<T>(to_float(y[i]) + to_float(b[i % cols]));
}

// y += b, row by row: for shapes that the library's own bias epilogue does not take.
void add_bias(CudaQueue& q, const TensorView& y, const TensorView& b) {
  dispatch_cuda(y.dtype, [&]<class T>() {
    bias_rows<<<blocks_for(y.size(), kThreads), kThreads, 0, q.stream>>>(y.as<T>(), b.as<T>(),
                                                                         y.size(), y.cols());
  });
}

// db's terms: the rows of dy.
template <class T>
struct RowTerms {
  const T* dy;
  int64_t cols;
  bool packed;

  __device__ void operator()(int64_t row, int64_t first, float (&terms)[8]) const {
    load(terms, dy + row * cols + first, cols - first, packed);
  }
};
}  // namespace

void compute(CudaQueue& q, const LinearForward& k) {
  if (k.y.size() == 0) return;
  if (k.batch_invariant) return run(q, DecodeLinear{.y = k.y, .x = k.x, .w = k.w, .b = k.b});
  Gemm p = gemm_of({k.y, false}, k.w, true, k.x, false);
  // The bias epilogue reads the bias in vectors: it is asked for where these are aligned.
  if (k.b && aligned16(k.b) && k.b.bytes() % 16 == 0) {
    p.bias = k.b.data;
    if (multiply(q, p)) return;
    p.bias = nullptr;
  }
  require_multiply(q, p, LinearForward::kName);
  if (k.b) add_bias(q, k.y, k.b);
}

// dx comes last: the kernel that reads it next finds part of it in the L2 cache.
void compute(CudaQueue& q, const LinearBackward& k) {
  const int64_t rows = k.x.rows(), cols = k.w.rows();
  const bool together = k.dw && k.db && linear_rows::covers(q, k);
  if (together) {
    linear_rows::run_hopper(q, k);
  } else if (k.dw && rows == 0 && !k.dw.accumulate) {
    WEFT_CUDA_CHECK(
        cudaMemsetAsync(k.dw.view.data, 0, static_cast<std::size_t>(k.dw.view.bytes()), q.stream));
  } else if (k.dw && rows > 0) {  // dw^T (K, M) = x^T (K, N) dy (N, M)
    const Gemm p = gemm_of(k.dw, k.x, false, k.dy, true);
    require_multiply(q, p, LinearBackward::kName);
  }
  if (k.db && !together) {
    dispatch_cuda(k.dy.dtype, [&]<class T>() {
      launch_column_sums(q, column_sums(k.db), rows, cols,
                         RowTerms<T>{k.dy.as<T>(), cols, aligned_rows(k.dy)},
                         LinearBackward::kName);
    });
  }
  if (k.dx && k.dx.view.size() > 0) {  // dx^T (K, N) = w^T (K, M) dy^T (M, N)
    const Gemm p = gemm_of(k.dx, k.w, false, k.dy, false);
    require_multiply(q, p, LinearBackward::kName);
  }
}
}  // namespace weft
