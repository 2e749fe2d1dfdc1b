// SPDX-License-Identifier: MIT
// The forward kernels of layer normalisation and residual connection: a warp a row.
#pragma once

#include "kernels/device/column_sums.cuh"
#include "kernels/device/vector8.cuh"
#include "kernels/layers/dropout_mask.cuh"

namespace weft::layernorm {
inline constexpr int kThreads = kStripeThreads;
inline constexpr int kWarps = kThreads / kWarp;
inline constexpr int kGroup = 8;
inline constexpr int kRowOfWarp = kWarp * kGroup;  // elements of a row that a warp takes at a time

template <class T>
struct Forward {
  T *h, *y;                    // y null: no norm
  const T *x, *branch, *bias;  // branch null: h is x, and not written; bias null: absent
  float *mean, *rstd;
  const float *w, *b;
  int64_t rows, cols;
  float eps;
  DropoutCall dropout;
  bool packed;  // all rows are whole, aligned groups of eight
};

// Elements of a row from `first` on. Packed rows are whole, aligned groups.
template <bool kPacked, class Args>
__device__ __forceinline__ int64_t left(const Args& a, int64_t first) {
  return kPacked ? kGroup : a.cols - first;
}

// h = x + dropout(branch + bias) of eight elements, rounded and stored, to the bits of the CPU
// form.
template <bool kPacked, class T>
__device__ __forceinline__ void add_branch(const Forward<T>& a, int64_t row, int64_t first,
                                           float (&h)[kGroup], float (&branch)[kGroup]) {
  if (a.bias) {
    float bias[kGroup];
    load(bias, a.bias + first, left<kPacked>(a, first), kPacked);
#pragma unroll
    for (int j = 0; j < kGroup; ++j) branch[j] += bias[j];
  }
  drop<kPacked>(branch, a.dropout, row * a.cols + first);
#pragma unroll
  for (int j = 0; j < kGroup; ++j) h[j] = to_float(from_float<T>(__fadd_rn(h[j], branch[j])));
  store(a.h + row * a.cols + first, h, left<kPacked>(a, first), kPacked);
}

template <bool kPacked, class T>
__device__ __forceinline__ void normalise(const Forward<T>& a, int64_t row, int64_t first,
                                          float (&h)[kGroup], float mean, float rstd) {
  float w[kGroup], b[kGroup];
  load(w, a.w + first, left<kPacked>(a, first), kPacked);
  load(b, a.b + first, left<kPacked>(a, first), kPacked);
#pragma unroll
  for (int j = 0; j < kGroup; ++j) h[j] = (h[j] - mean) * rstd * w[j] + b[j];
  store(a.y + row * a.cols + first, h, left<kPacked>(a, first), kPacked);
}

__device__ __forceinline__ float sum_of_squares(const float (&x)[kGroup], float mean,
                                                int64_t count) {
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

template <class T>
__device__ __forceinline__ void write_statistics(const Forward<T>& a, int64_t row, float mean,
                                                 float rstd) {
  if (threadIdx.x % kWarp != 0) return;
  a.mean[row] = mean;
  a.rstd[row] = rstd;
}

// A lane's share of a row.
template <class T, int kGroups>
struct RowWords {
  Eight<T> x[kGroups], branch[kGroups];
};

template <class T, int kGroups, bool kWhole>
__device__ __forceinline__ void fetch(RowWords<T, kGroups>& to, const Forward<T>& a, int64_t row,
                                      int64_t cols) {
  const int64_t lane_first = threadIdx.x % kWarp * kGroup;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int64_t first = g * kRowOfWarp + lane_first;
    if (row < 0 || (!kWhole && first >= cols)) continue;
    to.x[g] = load_eight(a.x + row * cols + first);
    if (kWhole || a.branch) to.branch[g] = load_eight(a.branch + row * cols + first);
  }
}

// add_branch() for eight packed elements from `at` on.
template <class T>
__device__ __forceinline__ void add_eight(const Forward<T>& a, const DropoutGroups& dropout,
                                          int64_t at, const Eight<T>& branch_words,
                                          const Eight<T>& bias_words, float (&h)[kGroup]) {
  float branch[kGroup];
  unpack(branch, branch_words);
  if (a.bias) {
    float bias[kGroup];
    unpack(bias, bias_words);
#pragma unroll
    for (int j = 0; j < kGroup; ++j) branch[j] += bias[j];
  }
  dropout.drop(branch, a.dropout, at);
#pragma unroll
  for (int j = 0; j < kGroup; ++j) h[j] = __fadd_rn(h[j], branch[j]);
  const Eight<T> rounded = pack_eight<T>(h);
  store_eight(a.h + at, rounded);
  unpack(h, rounded);
}

// Whether w, b and bias stay in registers, and blocks of a multiprocessor: as many as registers
// allow.
template <class T, int kGroups>
constexpr bool kHold = kGroups * sizeof(T) <= 4;
template <class T, int kGroups>
constexpr int kForwardBlocksOfSm = kGroups == 4               ? 1
                                   : kGroups * sizeof(T) <= 2 ? 3
                                                              : 2;

// Packed rows of at most kGroups * 256 elements. A warp takes every (gridDim.x * kWarps)-th row and
// prefetches the next one. It goes from the last row to the first, GEMMs the other way: rows that
// the GEMM before wrote last, and the one after reads first, are then in the L2 cache. kWhole:
// there are a branch and a norm, and rows have exactly kGroups * 256 elements.
template <class T, int kGroups, bool kWhole>
__global__ void __launch_bounds__(kThreads, kForwardBlocksOfSm<T, kGroups>)
    forward_in_registers(const Forward<T> a) {
  const int64_t cols = kWhole ? kGroups * kRowOfWarp : a.cols;
  const int64_t lane_first = threadIdx.x % kWarp * kGroup;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  int64_t row = a.rows - 1 - (static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp);
  const DropoutGroups dropout(a.dropout);
  Eight<float> w[kGroups], b[kGroups];
  Eight<T> bias[kGroups];
#pragma unroll
  for (int g = 0; kHold<T, kGroups> && g < kGroups; ++g) {
    const int64_t first = g * kRowOfWarp + lane_first;
    if (!kWhole && first >= cols) break;
    if (kWhole || a.y) w[g] = load_eight(a.w + first), b[g] = load_eight(a.b + first);
    if (a.bias) bias[g] = load_eight(a.bias + first);
  }
  RowWords<T, kGroups> next;
  fetch<T, kGroups, kWhole>(next, a, row, cols);
  for (; row >= 0; row -= step) {
    const RowWords<T, kGroups> now = next;
    fetch<T, kGroups, kWhole>(next, a, row - step, cols);
    float h[kGroups][kGroup] = {}, sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int64_t first = g * kRowOfWarp + lane_first;
      if (!kWhole && first >= cols) break;
      unpack(h[g], now.x[g]);
      if (kWhole || a.branch)
        add_eight(a, dropout, row * cols + first, now.branch[g],
                  kHold<T, kGroups> || !a.bias ? bias[g] : load_eight(a.bias + first), h[g]);
      sum += sum_of_group(h[g]);
    }
    if (!kWhole && !a.y) continue;
    const float mean = warp_sum(sum) / static_cast<float>(cols);
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
      squares += sum_of_squares(h[g], mean, kWhole ? kGroup : cols - (g * kRowOfWarp + lane_first));
    const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(cols) + a.eps);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int64_t first = g * kRowOfWarp + lane_first;
      if (!kWhole && first >= cols) break;
      float of_w[kGroup], of_b[kGroup];
      unpack(of_w, kHold<T, kGroups> ? w[g] : load_eight(a.w + first));
      unpack(of_b, kHold<T, kGroups> ? b[g] : load_eight(a.b + first));
#pragma unroll
      for (int j = 0; j < kGroup; ++j) h[g][j] = (h[g][j] - mean) * rstd * of_w[j] + of_b[j];
      store_eight(a.y + row * cols + first, pack_eight<T>(h[g]));
    }
    write_statistics(a, row, mean, rstd);
  }
}

template <class T, bool kPacked>
__global__ void __launch_bounds__(kThreads) forward_any_length(const Forward<T> a) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (row >= a.rows) return;
  const int64_t lane_first = threadIdx.x % kWarp * kGroup;
  // each lane reads back what it wrote itself
  const T* row_h = (a.branch ? a.h : a.x) + row * a.cols;
  float h[kGroup], sum = 0.0f, squares = 0.0f;
  for (int64_t first = lane_first; first < a.cols; first += kRowOfWarp) {
    load(h, a.x + row * a.cols + first, left<kPacked>(a, first), kPacked);
    if (a.branch) {
      float branch[kGroup];
      load(branch, a.branch + row * a.cols + first, left<kPacked>(a, first), kPacked);
      add_branch<kPacked>(a, row, first, h, branch);
    }
    sum += sum_of_group(h);
  }
  if (!a.y) return;
  const float mean = warp_sum(sum) / static_cast<float>(a.cols);
  for (int64_t first = lane_first; first < a.cols; first += kRowOfWarp) {
    load(h, row_h + first, left<kPacked>(a, first), kPacked);
    squares += sum_of_squares(h, mean, a.cols - first);
  }
  const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(a.cols) + a.eps);
  for (int64_t first = lane_first; first < a.cols; first += kRowOfWarp) {
    load(h, row_h + first, left<kPacked>(a, first), kPacked);
    normalise<kPacked>(a, row, first, h, mean, rstd);
  }
  write_statistics(a, row, mean, rstd);
}
}  // namespace weft::layernorm
