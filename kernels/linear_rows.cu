// SPDX-License-Identifier: MIT
// Affine map for sampling: a warp for one output column of eight rows, so that the weights are read once for
// eight rows. Lane l adds the products of columns 8 l .. 8 l + 7 modulo 256, then lanes are added in a
// butterfly: the number of rows has no part in it.
#include "kernels/linear_rows.cuh"

namespace weft {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kGroup = 8;
constexpr int kRows = 8;  // rows of x for one reading of w

template <class T>
struct Arguments {
  T* y;
  const T *x, *w, *b;
  std::int64_t rows, cols, inner;
  unsigned column_blocks;
  bool packed;
};

template <class T>
__global__ void __launch_bounds__(kThreads) warp_per_column(const Arguments<T> a) {
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x / a.column_blocks) * kRows;
  const std::int64_t m =
      static_cast<std::int64_t>(blockIdx.x % a.column_blocks) * kWarps + threadIdx.x / kWarp;
  if (m >= a.cols) return;
  const int lane = threadIdx.x % kWarp;
  float sum[kRows] = {};
  for (std::int64_t k = lane * kGroup; k < a.inner; k += kWarp * kGroup) {
    float w[kGroup];
    load(w, a.w + m * a.inner + k, a.inner - k, a.packed);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (first_row + r >= a.rows) break;
      float x[kGroup];
      load(x, a.x + (first_row + r) * a.inner + k, a.inner - k, a.packed);
#pragma unroll
      for (int j = 0; j < kGroup; ++j) sum[r] = fmaf(x[j], w[j], sum[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float total = warp_sum(sum[r]);
    if (lane == 0 && first_row + r < a.rows) {
      a.y[(first_row + r) * a.cols + m] = from_float<T>(total + (a.b ? to_float(a.b[m]) : 0.0f));
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    bias_rows(T* y, const T* b, std::int64_t size, std::int64_t cols) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < size) y[i] = from_float<T>(to_float(y[i]) + to_float(b[i % cols]));
}

}  // namespace

void linear_rows(CudaQueue& q, const LinearForward& k) {
  dispatch_cuda(k.x.dtype, [&]<class T>() {
    Arguments<T> a = {};
    a.y = k.y.as<T>();
    a.x = k.x.as<T>();
    a.w = k.w.as<T>();
    a.b = k.b ? k.b.as<T>() : nullptr;
    a.rows = k.x.rows();
    a.cols = k.w.rows();
    a.inner = k.x.cols();
    a.column_blocks = blocks_for(a.cols, kWarps);
    a.packed = aligned_rows(k.x) && aligned16(k.w);
    const std::int64_t row_tiles = (a.rows + kRows - 1) / kRows;
    warp_per_column<<<blocks_for(row_tiles * a.column_blocks, 1), kThreads, 0, q.stream>>>(a);
  });
}

void add_bias(CudaQueue& q, const TensorView& y, const TensorView& b) {
  dispatch_cuda(y.dtype, [&]<class T>() {
    bias_rows<<<blocks_for(y.size(), kThreads), kThreads, 0, q.stream>>>(y.as<T>(), b.as<T>(), y.size(),
                                                                         y.cols());
  });
}

}  // namespace weft
