// SPDX-License-Identifier: MIT
// The backward kernels of layer normalisation and residual connection, with partial sums over rows.
#pragma once

#include "kernels/layers/layernorm_forward.cuh"

#include <cuda_pipeline.h>

namespace weft::layernorm {
inline constexpr int kSums = 3;  // dw, db, dbias

template <class T>
struct Backward {
  T *dx, *dbranch, *y;   // null: not wanted; y may be h
  const T *dy, *h, *dh;  // dy null: no norm; dh null: nothing else reached h
  const float *mean, *rstd, *w, *b;
  float* partial;  // (gridDim.x, kSums, cols): first stage of the sums over rows
  int64_t rows, cols;
  DropoutCall dropout;
  bool packed, add_dx, add_dbranch, residual;
};

// This group's part of sum g and sum g * xhat, g = dy * w.
template <bool kPacked, class T>
__device__ __forceinline__ void norm_sums(const Backward<T>& a, int64_t first, float mean,
                                          float rstd, const float (&h)[kGroup],
                                          const float (&dy)[kGroup], float& sum_g, float& sum_gx) {
  float w[kGroup];
  load(w, a.w + first, left<kPacked>(a, first), kPacked);
#pragma unroll
  for (int j = 0; j < kGroup; ++j) {
    sum_g += dy[j] * w[j];
    sum_gx += dy[j] * w[j] * ((h[j] - mean) * rstd);
  }
}

// Recomputes the norm to the bits of forward_in_registers().
template <bool kPacked, class T>
__device__ __forceinline__ void write_norm(const Backward<T>& a, int64_t row, int64_t first,
                                           float mean, float rstd, const float (&h)[kGroup]) {
  float w[kGroup], b[kGroup], y[kGroup];
  load(w, a.w + first, left<kPacked>(a, first), kPacked);
  load(b, a.b + first, left<kPacked>(a, first), kPacked);
#pragma unroll
  for (int j = 0; j < kGroup; ++j) y[j] = (h[j] - mean) * rstd * w[j] + b[j];
  store(a.y + row * a.cols + first, y, left<kPacked>(a, first), kPacked);
}

// g += the gradient through the norm, rounded first: the same bits wherever dh joins. Adds to dw
// and db.
template <bool kPacked, class T>
__device__ __forceinline__ void add_norm_gradient(const Backward<T>& a, int64_t first, float mean,
                                                  float rstd, const float (&h)[kGroup],
                                                  const float (&dy)[kGroup], float mean_g,
                                                  float mean_gx, float (&g)[kGroup],
                                                  float (&sums)[kSums][kGroup]) {
  float w[kGroup];
  load(w, a.w + first, left<kPacked>(a, first), kPacked);
#pragma unroll
  for (int j = 0; j < kGroup; ++j) {
    const float xhat = (h[j] - mean) * rstd;
    sums[0][j] += dy[j] * xhat;
    sums[1][j] += dy[j];
    g[j] = __fadd_rn(g[j], __fmul_rn(rstd, dy[j] * w[j] - mean_g - xhat * mean_gx));
  }
}

// Writes dx = g and dbranch; adds to the accumulator of dbias.
template <bool kPacked, class T>
__device__ __forceinline__ void write_gradients(const Backward<T>& a, int64_t row, int64_t first,
                                                float (&g)[kGroup], float (&sums)[kSums][kGroup]) {
  const int64_t at = row * a.cols + first, count = left<kPacked>(a, first);
  if (a.dx) store(a.dx + at, g, count, kPacked, a.add_dx);
  if (!a.residual) return;
#pragma unroll
  for (int j = 0; j < kGroup; ++j) g[j] = to_float(from_float<T>(g[j]));
  drop<kPacked>(g, a.dropout, at);
#pragma unroll
  for (int j = 0; j < kGroup; ++j) sums[2][j] += g[j];
  if (a.dbranch) store(a.dbranch + at, g, count, kPacked, a.add_dbranch);
}

// Shared memory through which rows reach the registers. Each lane has slots of its own: none waits.
template <class T, int kGroups>
struct Ring {
  static constexpr int kStages = kGroups * sizeof(T) <= 8 ? 2 : 1;
  static constexpr int kWords = sizeof(T) / 2;  // of 16 bytes in eight elements
  using Row = uint4[3][kGroups][kWords][kWarp];
  Row stage[kWarps][kStages];

  __device__ __forceinline__ Row& of(int turn) {
    return stage[threadIdx.x / kWarp][turn % kStages];
  }
};

// which reuse the memory at the end
static_assert(sizeof(Ring<__half, 1>) >= sizeof(WarpSums<kSums>));

template <class T, int kGroups, bool kWhole>
__device__ __forceinline__ void send_for(const Backward<T>& a, int64_t row,
                                         typename Ring<T, kGroups>::Row& to) {
  const int64_t cols = kWhole ? kGroups * kRowOfWarp : a.cols;
  const int lane = threadIdx.x % kWarp;
  const T* const from[3] = {a.dy, a.dy ? a.h : nullptr, a.dh};
#pragma unroll
  for (int tensor = 0; tensor < 3; ++tensor) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int64_t first = g * kRowOfWarp + lane * kGroup;
      if (row < 0) continue;
      if (!kWhole && (!from[tensor] || first >= cols)) continue;
      const auto* words = reinterpret_cast<const uint4*>(from[tensor] + row * cols + first);
#pragma unroll
      for (int i = 0; i < Ring<T, kGroups>::kWords; ++i)
        __pipeline_memcpy_async(&to[tensor][g][i][lane], words + i, sizeof(uint4));
    }
  }
  __pipeline_commit();
}

template <class T, int kWords>
__device__ __forceinline__ void take(float (&out)[kGroup], const uint4 (&words)[kWords][kWarp]) {
  Eight<T> e;
#pragma unroll
  for (int i = 0; i < kWords; ++i) e.words[i] = words[i][threadIdx.x % kWarp];
  unpack(out, e);
}

// Blocks of a multiprocessor: as many as registers allow.
template <class T, int kGroups>
constexpr int kBlocksOfSm = kGroups * sizeof(T) <= 2   ? 3
                            : kGroups * sizeof(T) <= 4 ? 2
                                                       : 1;

// xhat and g = dy * w of eight elements; adds to the accumulators of g, g * xhat, dw and db.
__device__ __forceinline__ void normed_eight(const float (&h)[kGroup], const float (&dy)[kGroup],
                                             const float (&w)[kGroup], float mean, float rstd,
                                             float (&xhat)[kGroup], float (&g)[kGroup],
                                             float (&sums)[kSums][kGroup], float& sum_g,
                                             float& sum_gx) {
#pragma unroll
  for (int j = 0; j < kGroup; ++j) {
    xhat[j] = (h[j] - mean) * rstd;
    g[j] = dy[j] * w[j];
    sums[0][j] += dy[j] * xhat[j];
    sums[1][j] += dy[j];
    sum_g += g[j];
    sum_gx += g[j] * xhat[j];
  }
}

// write_norm() for eight packed elements from `at` on, column `first` of their row.
template <class T>
__device__ __forceinline__ void store_norm_eight(const Backward<T>& a, int64_t at, int64_t first,
                                                 float mean, float rstd, const float (&h)[kGroup],
                                                 const float (&w)[kGroup]) {
  float y[kGroup];
  unpack(y, load_eight(a.b + first));
#pragma unroll
  for (int j = 0; j < kGroup; ++j) y[j] = (h[j] - mean) * rstd * w[j] + y[j];
  store_eight(a.y + at, pack_eight<T>(y));
}

// write_gradients() for eight packed elements from `at` on; adds to the accumulator of dbias.
template <bool kWhole, class T>
__device__ __forceinline__ void write_eight(const Backward<T>& a, const DropoutGroups& dropout,
                                            int64_t at, float (&g)[kGroup],
                                            float (&dbias)[kGroup]) {
  const Eight<T> rounded = pack_eight<T>(g);
  if (!kWhole && a.add_dx) store(a.dx + at, g, kGroup, true, true);
  if (kWhole || (a.dx && !a.add_dx)) store_eight(a.dx + at, rounded);
  if (!kWhole && !a.residual) return;
  unpack(g, rounded);
  dropout.drop(g, a.dropout, at);
#pragma unroll
  for (int j = 0; j < kGroup; ++j) dbias[j] += g[j];
  if (!kWhole && a.add_dbranch) store(a.dbranch + at, g, kGroup, true, true);
  if (a.dbranch && (kWhole || !a.add_dbranch)) store_eight(a.dbranch + at, pack_eight<T>(g));
}

struct Statistics {
  float mean = 0.0f, rstd = 0.0f;
};

template <class T>
__device__ __forceinline__ Statistics statistics_of(const Backward<T>& a, int64_t row) {
  if (!a.dy || row < 0) return {};
  return {a.mean[row], a.rstd[row]};
}

// A warp takes every (gridDim.x * kWarps)-th row, from the last to the first as in the forward
// pass, keeps accumulators for its columns, and prefetches the next row unless rows are too long.
// kWhole: at most dbranch is absent, no gradient accumulates, and rows have exactly kGroups * 256
// elements.
template <class T, int kGroups, bool kWhole>
__global__ void __launch_bounds__(kThreads, kBlocksOfSm<T, kGroups>)
    backward_in_registers(const Backward<T> a) {
  extern __shared__ uint4 shared[];
  auto& ring = *reinterpret_cast<Ring<T, kGroups>*>(shared);
  const int64_t cols = kWhole ? kGroups * kRowOfWarp : a.cols;
  constexpr int kAhead = Ring<T, kGroups>::kStages - 1;
  const int64_t lane_first = threadIdx.x % kWarp * kGroup;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  const DropoutGroups dropout(a.dropout);
  int64_t row = a.rows - 1 - (static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp);
  float sums[kGroups][kSums][kGroup] = {};
  if (kAhead) send_for<T, kGroups, kWhole>(a, row, ring.of(0));
  Statistics next = statistics_of(a, row);
  for (int turn = 0; row >= 0; row -= step, ++turn) {
    send_for<T, kGroups, kWhole>(a, row - kAhead * step, ring.of(turn + kAhead));
    const auto [mean, rstd] = next;
    next = statistics_of(a, row - step);
    __pipeline_wait_prior(kAhead);
    const auto& [row_dy, row_h, row_dh] = ring.of(turn);
    float xhat[kGroups][kGroup], g_of[kGroups][kGroup], mean_g = 0.0f, mean_gx = 0.0f;
    if (kWhole || a.dy) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const int64_t first = g * kRowOfWarp + lane_first;
        if (!kWhole && first >= cols) break;
        float h[kGroup], dy[kGroup], w[kGroup];
        unpack(w, load_eight(a.w + first));
        take<T>(h, row_h[g]);
        if (a.y) store_norm_eight(a, row * cols + first, first, mean, rstd, h, w);
        take<T>(dy, row_dy[g]);
        normed_eight(h, dy, w, mean, rstd, xhat[g], g_of[g], sums[g], mean_g, mean_gx);
      }
      mean_g = warp_sum(mean_g) / static_cast<float>(cols);
      mean_gx = warp_sum(mean_gx) / static_cast<float>(cols);
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int64_t first = g * kRowOfWarp + lane_first;
      if (!kWhole && first >= cols) break;
      float gradient[kGroup] = {};
      if (kWhole || a.dh) take<T>(gradient, row_dh[g]);
      if (kWhole || a.dy) {
#pragma unroll
        for (int j = 0; j < kGroup; ++j)
          gradient[j] =
              __fadd_rn(gradient[j], __fmul_rn(rstd, g_of[g][j] - mean_g - xhat[g][j] * mean_gx));
      }
      write_eight<kWhole>(a, dropout, row * cols + first, gradient, sums[g][2]);
    }
  }
  auto& of_warp = *reinterpret_cast<WarpSums<kSums>*>(shared);
#pragma unroll
  for (int g = 0; g < kGroups; ++g)
    write_stripe<kSums>(of_warp, a.partial, blockIdx.x, g * kRowOfWarp, cols, sums[g]);
}

// A block takes every gridDim.x-th row; a thread keeps to its columns and accumulates them in
// `partial`.
template <class T, bool kPacked>
__global__ void __launch_bounds__(kThreads) backward_any_length(const Backward<T> a) {
  float* partial = a.partial + static_cast<int64_t>(blockIdx.x) * kSums * a.cols;
  const int64_t thread_first = threadIdx.x * kGroup;
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const float mean = a.dy ? a.mean[row] : 0.0f, rstd = a.dy ? a.rstd[row] : 0.0f;
    float h[kGroup], dy[kGroup], mean_g = 0.0f, mean_gx = 0.0f;
    if (a.dy) {
      for (int64_t first = thread_first; first < a.cols; first += kThreads * kGroup) {
        load(h, a.h + row * a.cols + first, left<kPacked>(a, first), kPacked);
        load(dy, a.dy + row * a.cols + first, left<kPacked>(a, first), kPacked);
        norm_sums<kPacked>(a, first, mean, rstd, h, dy, mean_g, mean_gx);
      }
      mean_g = block_sum<kThreads>(mean_g) / static_cast<float>(a.cols);
      mean_gx = block_sum<kThreads>(mean_gx) / static_cast<float>(a.cols);
    }
    for (int64_t first = thread_first; first < a.cols; first += kThreads * kGroup) {
      const int64_t at = row * a.cols + first, count = left<kPacked>(a, first);
      float gradient[kGroup] = {}, sums[kSums][kGroup] = {};
      if (a.dh) load(gradient, a.dh + at, count, kPacked);
      if (a.dy) {
        load(h, a.h + at, count, kPacked);
        load(dy, a.dy + at, count, kPacked);
        add_norm_gradient<kPacked>(a, first, mean, rstd, h, dy, mean_g, mean_gx, gradient, sums);
        if (a.y) write_norm<kPacked>(a, row, first, mean, rstd, h);
      }
      write_gradients<kPacked>(a, row, first, gradient, sums);
#pragma unroll
      for (int s = 0; s < kSums; ++s)
        store(partial + s * a.cols + first, sums[s], count, kPacked, row >= gridDim.x);
    }
  }
}
}  // namespace weft::layernorm
