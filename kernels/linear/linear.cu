// SPDX-License-Identifier: MIT
// Affine map on CUDA: GEMMs through cuBLASLt (matmul.cuh). The library is column-major and reads a row-major
// (R, C) matrix as a (C, R) matrix with leading dimension C. It therefore gets y = x w^T as y^T = w x^T. db
// is a column sum of our own; on Hopper one kernel computes dw and db (weight_gradient.cuh).
#include "kernels/device/column_sums.cuh"
#include "kernels/linear/linear.h"
#include "kernels/linear/matmul.cuh"
#include "kernels/linear/weight_gradient.h"
#include "kernels/sampling/decode_linear.h"

namespace weft {
namespace {

constexpr int kThreads = 256;

void require(bool done, const char* what, const Gemm& p) {
  WEFT_CHECK(done, what, ": cuBLASLt has no algorithm for ", p.rows, " x ", p.cols, " x ", p.inner, " of ",
             name_of(p.in), " that adds partial sums in a fixed order");
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    bias_rows(T* y, const T* b, std::int64_t size, std::int64_t cols) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < size) y[i] = from_float<T>(to_float(y[i]) + to_float(b[i % cols]));
}

// y += b, row by row: for shapes that the library's own bias epilogue does not take.
void add_bias(CudaQueue& q, const TensorView& y, const TensorView& b) {
  dispatch_cuda(y.dtype, [&]<class T>() {
    bias_rows<<<blocks_for(y.size(), kThreads), kThreads, 0, q.stream>>>(y.as<T>(), b.as<T>(), y.size(),
                                                                         y.cols());
  });
}

// db's terms: the rows of dy.
template <class T>
struct RowTerms {
  const T* dy;
  std::int64_t cols;
  bool packed;
  __device__ void operator()(std::int64_t row, std::int64_t first, float (&terms)[8]) const {
    load(terms, dy + row * cols + first, cols - first, packed);
  }
};

}  // namespace

void run(CudaQueue& q, const LinearForward& k) {
  check(k);
  if (k.y.size() == 0) return;
  if (k.batch_invariant) return run(q, DecodeLinear{.y = k.y, .x = k.x, .w = k.w, .b = k.b});
  Gemm p;
  p.a = k.w.data;
  p.transpose_a = true;
  p.b = k.x.data;
  p.out = k.y.data;
  p.rows = k.w.rows();
  p.cols = k.x.rows();
  p.inner = k.x.cols();
  p.in = p.to = k.x.dtype;
  // The bias epilogue reads the bias in vectors: it is asked for where these are aligned.
  if (k.b && aligned16(k.b) && k.b.bytes() % 16 == 0) {
    p.bias = k.b.data;
    if (multiply(q, p)) return;
    p.bias = nullptr;
  }
  require(multiply(q, p), LinearForward::kName, p);
  if (k.b) add_bias(q, k.y, k.b);
}

// dx comes last: the kernel that reads it next finds part of it in the L2 cache.
void run(CudaQueue& q, const LinearBackward& k) {
  check(k);
  const std::int64_t rows = k.x.rows(), inner = k.x.cols(), cols = k.w.rows();
  const bool together = k.dw && k.db && linear_rows::covers(q, k);
  if (together) {
    linear_rows::run_hopper(q, k);
  } else if (k.dw && rows == 0 && !k.dw.accumulate) {
    WEFT_CUDA_CHECK(
        cudaMemsetAsync(k.dw.view.data, 0, static_cast<std::size_t>(k.dw.view.bytes()), q.stream));
  } else if (k.dw && rows > 0) {  // dw^T (K, M) = x^T (K, N) dy (N, M)
    Gemm p;
    p.a = k.x.data;
    p.b = k.dy.data;
    p.transpose_b = true;
    p.out = k.dw.view.data;
    p.rows = inner;
    p.cols = cols;
    p.inner = rows;
    p.in = k.x.dtype;
    p.to = DType::f32;
    p.accumulate = k.dw.accumulate;
    require(multiply(q, p), LinearBackward::kName, p);
  }
  if (k.db && !together) {
    dispatch_cuda(k.dy.dtype, [&]<class T>() {
      launch_column_sums(q, column_sums(k.db), rows, cols,
                         RowTerms<T>{k.dy.as<T>(), cols, aligned_rows(k.dy)}, LinearBackward::kName);
    });
  }
  if (k.dx && k.dx.view.size() > 0) {  // dx^T (K, N) = w^T (K, M) dy^T (M, N)
    Gemm p;
    p.a = k.w.data;
    p.b = k.dy.data;
    p.out = k.dx.view.data;
    p.rows = inner;
    p.cols = rows;
    p.inner = cols;
    p.in = p.to = k.x.dtype;
    p.accumulate = k.dx.accumulate;
    require(multiply(q, p), LinearBackward::kName, p);
  }
}

}  // namespace weft
