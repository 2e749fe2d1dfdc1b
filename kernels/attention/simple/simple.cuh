// SPDX-License-Identifier: MIT
// Attention in plain fused multiply-adds, all in f32 whatever the element type (never tf32). A
// block of 128 threads owns a strip of 32 rows (16 of small tiles and of large heads) and goes
// through strips of the other side; a thread has 4 rows by 2 columns (2 by 1) of scores.
#pragma once

#include "kernels/attention/direction.cuh"
#include "kernels/attention/launch.cuh"
#include "kernels/attention/launchers.h"
#include "kernels/device/cuda.cuh"

#include <algorithm>

namespace weft::attention::simple {
inline constexpr int kSimpleThreads = 128, kColumnThreads = 16;

// Element type, padded head size, edge of the tiles. Four matrices of a strip fit the 99 KiB of
// sm_86.
template <class Element, int kSize, int kEdgeOfTiles>
struct Simple {
  using T = Element;
  static constexpr int P = kSize, kEdge = kEdgeOfTiles;
  static constexpr int kRows = kEdge == kTile && P <= 128 ? 32 : 16;
  static constexpr int kStrips = kEdge / kRows;
  // floats; 8 neighbouring rows lie in 8 different groups of banks
  static constexpr int kPitch = P + 4;
  static constexpr int kWeightPitch = kRows + 4;
  static constexpr int kRowsOfThread = kRows * kColumnThreads / kSimpleThreads;
  static constexpr int kColumnsOfThread = kRows / kColumnThreads;
  // at a time: bounds the registers
  static constexpr int kBlocks = P > 64 ? 2 : kRows == 32 ? 3 : 4;
  static constexpr int kMatrix = kRows * kPitch, kWeights = kRows * kWeightPitch;  // floats

  using Scores = float[kRowsOfThread][kColumnsOfThread];
  // Rows first_row() + i, columns 64 j + 4 column_thread() .. + 3.
  using RowSums = float4[kRowsOfThread][P / 64];
  using RowScalars = float[kRowsOfThread];

  static constexpr int bytes(int matrices) {
    return (matrices * kMatrix + kWeights) * static_cast<int>(sizeof(float));
  }

  __device__ static int first_row() { return threadIdx.x / kColumnThreads * kRowsOfThread; }
};

__device__ inline int column_thread() { return threadIdx.x % kColumnThreads; }

// Copies the rows in `order` to shared memory, P columns each; zeros beyond the size and in empty
// slots.
template <class S>
__device__ void gather(float* to, const HeadsView& x, const BlockIndex& at, const int32_t* order) {
  constexpr int kChunk = 16 / sizeof(typename S::T), kChunks = S::P / kChunk;
  for (int item = threadIdx.x; item < S::kRows * kChunks; item += kSimpleThreads) {
    const int row = item / kChunks, column = item % kChunks * kChunk, position = order[row];
    float value[kChunk] = {};
    if (position >= 0 && column < x.size)
      load(value, head_row<const typename S::T>(x, at, position) + column, kChunk, true);
#pragma unroll
    for (int i = 0; i < kChunk; i += 4)
      *reinterpret_cast<float4*>(to + row * S::kPitch + column + i) =
          float4{value[i], value[i + 1], value[i + 2], value[i + 3]};
  }
}

// s[i][j] = row first_row() + i of a times row column_thread() + 16 j of b.
template <class S>
__device__ void multiply_transposed(typename S::Scores& s, const float* a, const float* b) {
  for (auto& row : s)
    for (float& score : row) score = 0;
#pragma unroll 4
  for (int d = 0; d < S::P; d += 4) {
    float4 x[S::kRowsOfThread], y[S::kColumnsOfThread];
#pragma unroll
    for (int i = 0; i < S::kRowsOfThread; ++i)
      x[i] = *reinterpret_cast<const float4*>(a + (S::first_row() + i) * S::kPitch + d);
#pragma unroll
    for (int j = 0; j < S::kColumnsOfThread; ++j)
      y[j] = *reinterpret_cast<const float4*>(
          b + (column_thread() + j * kColumnThreads) * S::kPitch + d);
#pragma unroll
    for (int i = 0; i < S::kRowsOfThread; ++i)
#pragma unroll
      for (int j = 0; j < S::kColumnsOfThread; ++j)
        s[i][j] = fmaf(x[i].w, y[j].w,
                       fmaf(x[i].z, y[j].z, fmaf(x[i].y, y[j].y, fmaf(x[i].x, y[j].x, s[i][j]))));
  }
}

__device__ inline void add_product(float4& sum, float w, const float4& x) {
  sum.x = fmaf(w, x.x, sum.x);
  sum.y = fmaf(w, x.y, sum.y);
  sum.z = fmaf(w, x.z, sum.z);
  sum.w = fmaf(w, x.w, sum.w);
}

// sums += weights (rows x rows) x (rows x P). A thread reads weights that its own half warp wrote.
template <class S>
__device__ void multiply_add(typename S::RowSums& sums, const float* weights, const float* x) {
#pragma unroll 2
  for (int k = 0; k < S::kRows; k += 4) {
    float w[S::kRowsOfThread][4];
#pragma unroll
    for (int i = 0; i < S::kRowsOfThread; ++i) {
      const float4 four =
          *reinterpret_cast<const float4*>(weights + (S::first_row() + i) * S::kWeightPitch + k);
      w[i][0] = four.x, w[i][1] = four.y, w[i][2] = four.z, w[i][3] = four.w;
    }
#pragma unroll
    for (int step = 0; step < 4; ++step)
#pragma unroll
      for (int j = 0; j < S::P / 64; ++j) {
        const float4 value = *reinterpret_cast<const float4*>(x + (k + step) * S::kPitch + j * 64 +
                                                              column_thread() * 4);
#pragma unroll
        for (int i = 0; i < S::kRowsOfThread; ++i) add_product(sums[i][j], w[i][step], value);
      }
  }
}

template <class S>
__device__ void put_weights(float* weights, const typename S::Scores& w) {
#pragma unroll
  for (int i = 0; i < S::kRowsOfThread; ++i)
#pragma unroll
    for (int j = 0; j < S::kColumnsOfThread; ++j)
      weights[(S::first_row() + i) * S::kWeightPitch + column_thread() + j * kColumnThreads] =
          w[i][j];
}

template <class S>
__device__ void clear(typename S::RowSums& sums) {
  for (auto& row : sums)
    for (auto& part : row) part = {0, 0, 0, 0};
}

// Calls f(pointer into the row, sum) for the four columns of each of a thread's sums that exist in
// x.
template <class S, class F>
__device__ void for_each_sum(const HeadsView& x, const BlockIndex& at, const int32_t* order,
                             F&& f) {
#pragma unroll
  for (int i = 0; i < S::kRowsOfThread; ++i) {
    const int position = order[S::first_row() + i];
    if (position < 0) continue;
#pragma unroll
    for (int j = 0; j < S::P / 64; ++j) {
      const int column = j * 64 + column_thread() * 4;
      if (column < x.size) f(head_row<typename S::T>(x, at, position) + column, i, j);
    }
  }
}

// Stores factor * sums, or adds them to what an earlier pass left.
template <class S>
__device__ void store_rows(const HeadsView& out, const BlockIndex& at, const int32_t* order,
                           const typename S::RowSums& sums, const typename S::RowScalars& factor,
                           bool add) {
  for_each_sum<S>(out, at, order, [&](typename S::T* to, int i, int j) {
    const float4& s = sums[i][j];
    const float four[4] = {s.x * factor[i], s.y * factor[i], s.z * factor[i], s.w * factor[i]};
    store(to, four, 4, true, add);
  });
}

template <class S>
__device__ void load_rows(const HeadsView& in, const BlockIndex& at, const int32_t* order,
                          typename S::RowSums& sums) {
  for_each_sum<S>(in, at, order, [&](const typename S::T* from, int i, int j) {
    float four[4];
    load(four, from, 4, true);
    sums[i][j] = {four[0], four[1], four[2], four[3]};
  });
}

// Segment number of the position in a slot, -1 where there is none; 0 for all without segments.
__device__ inline int segment(const TensorView& x, const BlockIndex& at, int position) {
  if (x.data == nullptr) return 0;
  return position < 0 ? -1 : static_cast<const int32_t*>(x.data)[at.b * x.shape[1] + position];
}

// The strip that a thread block owns, and the strips of the other side.
template <class S>
struct Strip {
  const Direction& d;
  int tile, strip;

  __device__ Strip(const Direction& direction, int rank)
      : d(direction),
        strip(rank % S::kStrips) {
    tile = rank / S::kStrips < d.own_tiles ? d.schedule[rank / S::kStrips] : -1;
  }

  __device__ const int32_t* order() const {
    return d.own_order + static_cast<int64_t>(tile) * S::kEdge + strip * S::kRows;
  }

  __device__ bool has_pairs() const { return d.start[tile] < d.start[tile + 1]; }

  // Calls f(order of a strip of the other side, attended) for each one with pairs; attended(i, j):
  // row first_row() + i sees column column_thread() + 16 j. The threads meet before each call.
  template <class F>
  __device__ void for_each_partner(const BlockIndex& at, const TensorView& own_segments,
                                   const TensorView& other_segments, F&& f) const {
    int own[S::kRowsOfThread];
#pragma unroll
    for (int i = 0; i < S::kRowsOfThread; ++i)
      own[i] = segment(own_segments, at, order()[S::first_row() + i]);
    for (int e = d.start[tile]; e < d.start[tile + 1]; ++e)
      for (int other = 0; other < S::kStrips && d.mask[e] != kSkip; ++other) {
        const int32_t* other_order =
            d.other_order + static_cast<int64_t>(d.tile[e]) * S::kEdge + other * S::kRows;
        uint32_t words[S::kRowsOfThread];
        if (d.mask[e] < 0 && !own_segments.data) {
          for (uint32_t& word : words) word = ~0u;
          __syncthreads();
        } else if (!__syncthreads_or(
                       find_words(words, e, other, own, at, other_segments, other_order))) {
          continue;
        }
        f(other_order,
          [&](int i, int j) { return words[i] >> (column_thread() + j * kColumnThreads) & 1; });
      }
  }

 private:
  // Word i: which columns of a strip row first_row() + i sees; whether this thread has a pair in
  // it.
  __device__ bool find_words(uint32_t (&words)[S::kRowsOfThread], int e, int other,
                             const int (&own)[S::kRowsOfThread], const BlockIndex& at,
                             const TensorView& other_segments, const int32_t* other_order) const {
    const int64_t first =
        static_cast<int64_t>(d.mask[e]) * S::kEdge + strip * S::kRows + S::first_row();
    uint32_t any = 0;
#pragma unroll
    for (int i = 0; i < S::kRowsOfThread; ++i)
      words[i] =
          d.mask[e] < 0 ? ~0u : static_cast<uint32_t>(d.masks[first + i] >> (other * S::kRows));
#pragma unroll
    for (int j = 0; j < S::kColumnsOfThread; ++j) {
      const int column = column_thread() + j * kColumnThreads;
      const int number = segment(other_segments, at, other_order[column]);
#pragma unroll
      for (int i = 0; i < S::kRowsOfThread; ++i) {
        if (number < 0 || number != own[i]) words[i] &= ~(1u << column);
        any |= words[i] >> column & 1;
      }
    }
    return any != 0;
  }
};

// Calls f.operator()<Simple<...>>() for the element type, the padded head size and the edge.
template <class F>
void with_simple(DType dtype, int64_t head_size, int edge, F&& f) {
  dispatch_cuda(dtype, [&]<class T>() {
    const auto with_size = [&]<int kEdge>() {
      if (head_size <= 64) return f.template operator()<Simple<T, 64, kEdge>>();
      if (head_size <= 128) return f.template operator()<Simple<T, 128, kEdge>>();
      return f.template operator()<Simple<T, 256, kEdge>>();
    };
    edge == kTile ? with_size.template operator()<kTile>()
                  : with_size.template operator()<kSmallTile>();
  });
}
}  // namespace weft::attention::simple
