// SPDX-License-Identifier: MIT
// Layer normalisation on CUDA: a warp for each row, held in registers (statistics in two passes over them, in
// f32). The backward pass sums dw and db on the way when the row fits twice; longer rows are read again from
// the cache.
#include "kernels/columns.cuh"
#include "kernels/cuda.cuh"
#include "kernels/layernorm.h"

namespace weft {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kGroup = 8;
constexpr int kRowOfWarp = kWarp * kGroup;  // elements of a row that a warp takes at a time
constexpr std::int64_t kFusedBlocks =
    528;  // of the backward kernel that also sums dw and db: four for each SM of an H200

template <class T>
struct Forward {
  T* y;
  float *mean, *rstd;
  const T* x;
  const float *w, *b;
  std::int64_t rows, cols;
  float eps;
  bool packed;
};

template <class T>
__device__ __forceinline__ void normalise(const Forward<T>& a, std::int64_t row, std::int64_t first,
                                          float (&x)[kGroup], float mean, float rstd) {
  float w[kGroup], b[kGroup];
  load(w, a.w + first, a.cols - first, a.packed);
  load(b, a.b + first, a.cols - first, a.packed);
#pragma unroll
  for (int j = 0; j < kGroup; ++j) x[j] = (x[j] - mean) * rstd * w[j] + b[j];
  store(a.y + row * a.cols + first, x, a.cols - first, a.packed);
}

__device__ __forceinline__ float sum_of_squares(const float (&x)[kGroup], float mean, std::int64_t count) {
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kGroup; ++j) {
    const float d = j < count ? x[j] - mean : 0.0f;
    sum += d * d;
  }
  return sum;
}

__device__ __forceinline__ float sum_of_group(const float (&x)[kGroup]) {
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kGroup; ++j) sum += x[j];
  return sum;
}

template <class T, int kGroups>
__global__ void __launch_bounds__(kThreads) forward_in_registers(const Forward<T> a) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (row >= a.rows) return;
  const int lane = threadIdx.x % kWarp;
  float x[kGroups][kGroup];
  float sum = 0.0f;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const std::int64_t first = g * kRowOfWarp + lane * kGroup;
    load(x[g], a.x + row * a.cols + first, a.cols - first, a.packed);
    sum += sum_of_group(x[g]);
  }
  const float mean = warp_sum(sum) / static_cast<float>(a.cols);
  float squares = 0.0f;
#pragma unroll
  for (int g = 0; g < kGroups; ++g)
    squares += sum_of_squares(x[g], mean, a.cols - (g * kRowOfWarp + lane * kGroup));
  const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(a.cols) + a.eps);
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const std::int64_t first = g * kRowOfWarp + lane * kGroup;
    if (first < a.cols) normalise(a, row, first, x[g], mean, rstd);
  }
  if (lane == 0) {
    a.mean[row] = mean;
    a.rstd[row] = rstd;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) forward_any_length(const Forward<T> a) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (row >= a.rows) return;
  const int lane = threadIdx.x % kWarp;
  const T* row_x = a.x + row * a.cols;
  float x[kGroup], sum = 0.0f, squares = 0.0f;
  for (std::int64_t first = lane * kGroup; first < a.cols; first += kRowOfWarp) {
    load(x, row_x + first, a.cols - first, a.packed);
    sum += sum_of_group(x);
  }
  const float mean = warp_sum(sum) / static_cast<float>(a.cols);
  for (std::int64_t first = lane * kGroup; first < a.cols; first += kRowOfWarp) {
    load(x, row_x + first, a.cols - first, a.packed);
    squares += sum_of_squares(x, mean, a.cols - first);
  }
  const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(a.cols) + a.eps);
  for (std::int64_t first = lane * kGroup; first < a.cols; first += kRowOfWarp) {
    load(x, row_x + first, a.cols - first, a.packed);
    normalise(a, row, first, x, mean, rstd);
  }
  if (lane == 0) {
    a.mean[row] = mean;
    a.rstd[row] = rstd;
  }
}

template <class T>
struct Backward {
  T* dx;
  const T *dy, *x;
  const float *mean, *rstd, *w;
  std::int64_t rows, cols;
  bool packed, accumulate;
};

// Turns x into xhat and adds this group's part of sum g and sum g * xhat, g = dy * w.
template <class T>
__device__ __forceinline__ void backward_sums(const Backward<T>& a, std::int64_t row, std::int64_t first,
                                              float (&x)[kGroup], float (&dy)[kGroup], float& sum_g,
                                              float& sum_gx) {
  float w[kGroup];
  load(x, a.x + row * a.cols + first, a.cols - first, a.packed);
  load(dy, a.dy + row * a.cols + first, a.cols - first, a.packed);  // 0 past the end of the row
  load(w, a.w + first, a.cols - first, a.packed);
  const float mean = a.mean[row], rstd = a.rstd[row];
#pragma unroll
  for (int j = 0; j < kGroup; ++j) {
    x[j] = (x[j] - mean) * rstd;
    sum_g += dy[j] * w[j];
    sum_gx += dy[j] * w[j] * x[j];
  }
}

template <class T>
__device__ __forceinline__ void write_dx(const Backward<T>& a, std::int64_t row, std::int64_t first,
                                         const float (&xhat)[kGroup], const float (&dy)[kGroup], float mean_g,
                                         float mean_gx) {
  if (first >= a.cols) return;
  float dx[kGroup];
  load(dx, a.w + first, a.cols - first, a.packed);
  const float rstd = a.rstd[row];
#pragma unroll
  for (int j = 0; j < kGroup; ++j) dx[j] = rstd * (dy[j] * dx[j] - mean_g - xhat[j] * mean_gx);
  store(a.dx + row * a.cols + first, dx, a.cols - first, a.packed, a.accumulate);
}

// dx, and partial sums (gridDim.x, 2, cols) of dw and db. A warp takes every (gridDim.x * kWarps)-th row.
template <class T, int kGroups>
__global__ void __launch_bounds__(kThreads) backward_in_registers(const Backward<T> a, float* partial) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  float dw[kGroups][kGroup] = {}, db[kGroups][kGroup] = {};
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp; row < a.rows;
       row += static_cast<std::int64_t>(gridDim.x) * kWarps) {
    float xhat[kGroups][kGroup], dy[kGroups][kGroup];
    float sum_g = 0.0f, sum_gx = 0.0f;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      backward_sums(a, row, g * kRowOfWarp + lane * kGroup, xhat[g], dy[g], sum_g, sum_gx);
    }
    const float mean_g = warp_sum(sum_g) / static_cast<float>(a.cols);
    const float mean_gx = warp_sum(sum_gx) / static_cast<float>(a.cols);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      write_dx(a, row, g * kRowOfWarp + lane * kGroup, xhat[g], dy[g], mean_g, mean_gx);
#pragma unroll
      for (int j = 0; j < kGroup; ++j) {
        dw[g][j] += dy[g][j] * xhat[g][j];
        db[g][j] += dy[g][j];
      }
    }
  }
  // The warps' sums, one warp after the other.
  __shared__ float sums[2][kGroups * kRowOfWarp];
  for (int turn = 0; turn < kWarps; ++turn) {
    if (warp == turn) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
          const int slot = (g * kGroup + j) * kWarp + lane;  // of column g * kRowOfWarp + lane * kGroup + j
          sums[0][slot] = turn == 0 ? dw[g][j] : sums[0][slot] + dw[g][j];
          sums[1][slot] = turn == 0 ? db[g][j] : sums[1][slot] + db[g][j];
        }
      }
    }
    __syncthreads();
  }
  for (int slot = threadIdx.x; slot < kGroups * kRowOfWarp; slot += kThreads) {
    const int group_and_j = slot / kWarp;
    const std::int64_t column =
        group_and_j / kGroup * kRowOfWarp + slot % kWarp * kGroup + group_and_j % kGroup;
    if (column >= a.cols) continue;
    partial[(static_cast<std::int64_t>(blockIdx.x) * 2) * a.cols + column] = sums[0][slot];
    partial[(static_cast<std::int64_t>(blockIdx.x) * 2 + 1) * a.cols + column] = sums[1][slot];
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) backward_any_length(const Backward<T> a) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (row >= a.rows) return;
  const int lane = threadIdx.x % kWarp;
  float xhat[kGroup], dy[kGroup], sum_g = 0.0f, sum_gx = 0.0f;
  for (std::int64_t first = lane * kGroup; first < a.cols; first += kRowOfWarp) {
    backward_sums(a, row, first, xhat, dy, sum_g, sum_gx);
  }
  const float mean_g = warp_sum(sum_g) / static_cast<float>(a.cols);
  const float mean_gx = warp_sum(sum_gx) / static_cast<float>(a.cols);
  for (std::int64_t first = lane * kGroup; first < a.cols; first += kRowOfWarp) {
    backward_sums(a, row, first, xhat, dy, sum_g, sum_gx);
    write_dx(a, row, first, xhat, dy, mean_g, mean_gx);
  }
}

// Terms of dw and db for sum_stripes.
template <class T>
struct ParameterTerms {
  Backward<T> a;
  __device__ void operator()(std::int64_t row, std::int64_t first, float (&terms)[2][8]) const {
    float x[kGroup];
    load(x, a.x + row * a.cols + first, a.cols - first, a.packed);
    load(terms[1], a.dy + row * a.cols + first, a.cols - first, a.packed);
    const float mean = a.mean[row], rstd = a.rstd[row];
#pragma unroll
    for (int j = 0; j < kGroup; ++j) terms[0][j] = terms[1][j] * ((x[j] - mean) * rstd);
  }
};

template <class T, int kGroups>
void launch_in_registers(CudaQueue& q, const LayerNormBackward& k, const Backward<T>& a) {
  const std::int64_t blocks = std::min<std::int64_t>(kFusedBlocks, (a.rows + kWarps - 1) / kWarps);
  std::size_t offset = 0;
  auto* partial = take_workspace<float>(q, offset, blocks * 2 * a.cols, LayerNormBackward::kName);
  backward_in_registers<T, kGroups><<<static_cast<unsigned>(blocks), kThreads, 0, q.stream>>>(a, partial);
  if (!k.dw && !k.db) return;
  launch_sum_partials<2>(q, column_sums(k.dw), column_sums(k.db), partial, blocks, a.cols);
}

template <class T>
void backward(CudaQueue& q, const LayerNormBackward& k) {
  const std::int64_t rows = k.x.rows(), cols = k.x.cols();
  const Backward<T> a = {k.dx ? k.dx.view.as<T>() : nullptr,
                         k.dy.as<T>(),
                         k.x.as<T>(),
                         k.mean.as<float>(),
                         k.rstd.as<float>(),
                         k.w.as<float>(),
                         rows,
                         cols,
                         aligned_rows(k.x) && aligned16(k.dy) && aligned16(k.dx.view) && aligned16(k.w),
                         k.dx.accumulate};
  if (k.dx && rows > 0 && cols <= kRowOfWarp) return launch_in_registers<T, 1>(q, k, a);
  if (k.dx && rows > 0 && cols <= 2 * kRowOfWarp) return launch_in_registers<T, 2>(q, k, a);
  if (k.dx && rows > 0 && cols <= 4 * kRowOfWarp) return launch_in_registers<T, 4>(q, k, a);
  if (k.dx && rows > 0) backward_any_length<T><<<blocks_for(rows, kWarps), kThreads, 0, q.stream>>>(a);
  if (!k.dw && !k.db) return;
  launch_column_sums<2>(q, column_sums(k.dw), column_sums(k.db), rows, cols, ParameterTerms<T>{a},
                        LayerNormBackward::kName);
}

}  // namespace

void run(CudaQueue& q, const LayerNormForward& k) {
  check(k);
  const std::int64_t rows = k.x.rows(), cols = k.x.cols();
  if (rows == 0) return;
  const unsigned blocks = blocks_for(rows, kWarps);
  const bool packed = aligned_rows(k.x) && aligned16(k.y) && aligned16(k.w) && aligned16(k.b);
  dispatch_cuda(k.x.dtype, [&]<class T>() {
    const Forward<T> a = {k.y.as<T>(),
                          k.mean.as<float>(),
                          k.rstd.as<float>(),
                          k.x.as<T>(),
                          k.w.as<float>(),
                          k.b.as<float>(),
                          rows,
                          cols,
                          static_cast<float>(k.eps),
                          packed};
    if (cols <= kRowOfWarp) {
      forward_in_registers<T, 1><<<blocks, kThreads, 0, q.stream>>>(a);
    } else if (cols <= 2 * kRowOfWarp) {
      forward_in_registers<T, 2><<<blocks, kThreads, 0, q.stream>>>(a);
    } else if (cols <= 4 * kRowOfWarp) {
      forward_in_registers<T, 4><<<blocks, kThreads, 0, q.stream>>>(a);
    } else if (cols <= 16 * kRowOfWarp) {
      forward_in_registers<T, 16><<<blocks, kThreads, 0, q.stream>>>(a);
    } else {
      forward_any_length<T><<<blocks, kThreads, 0, q.stream>>>(a);
    }
  });
}

void run(CudaQueue& q, const LayerNormBackward& k) {
  check(k);
  dispatch_cuda(k.x.dtype, [&]<class T>() { backward<T>(q, k); });
}

}  // namespace weft
