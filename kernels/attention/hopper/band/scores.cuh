// SPDX-License-Identifier: MIT
// Forward over bands: the edges of the band, the largest score of a row, and y to shared memory.
#pragma once

#include "kernels/attention/hopper/band/band.cuh"
#include "kernels/attention/hopper/softmax.cuh"

#include <cmath>

namespace weft::attention::hopper {
// Of this thread's two rows: the keys of a tile that they see, counted from its own first column.
struct SeenKeys {
  int first[2], last[2];

  __device__ __forceinline__ static SeenKeys of(const BandTiles& tiles, int back,
                                                const Reach& reach) {
    SeenKeys seen;
    const int column = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const TileRows keys = tiles.keys_of(row_of(half), back, reach.rows[half]);
      seen.first[half] = keys.first - column;
      seen.last[half] = keys.last - column;
    }
    return seen;
  }

  __device__ __forceinline__ bool before_end(int i) const {
    return i / 4 * 8 + i % 2 <= last[i / 2 % 2];
  }

  __device__ __forceinline__ bool after_begin(int i) const {
    return i / 4 * 8 + i % 2 >= first[i / 2 % 2];
  }

  // The mask for the two scores from i on, once they are rounded, that keeps those after `last`.
  __device__ __forceinline__ uint32_t mask_after(int i) const {
    const int bits = (last[i / 2 % 2] + 1 - i / 4 * 8) * 16;
    return __funnelshift_lc(0, ~0u, static_cast<uint32_t>(max(bits, 0)));
  }
};

// Scores of keys ahead of the first that a query sees become -inf.
__device__ __forceinline__ void hide_begin(float (&s)[32], const SeenKeys& seen) {
#pragma unroll
  for (int i = 0; i < 32; ++i)
    if (!seen.after_begin(i)) s[i] = -INFINITY;
}

// Scores of queries with keys that they do not see become -inf.
__device__ __forceinline__ void hide(float (&s)[32], const BandTiles& tiles, int back,
                                     const Reach& reach) {
  const SeenKeys seen = SeenKeys::of(tiles, back, reach);
#pragma unroll
  for (int i = 0; i < 32; ++i)
    if (!seen.before_end(i)) s[i] = -INFINITY;
  if (tiles.column_rows < kTile || tiles.reach < (back + 1) * kTile || reach.cut)
    hide_begin(s, seen);
}

template <int kTiles>
__device__ __forceinline__ void find_top(Softmax& softmax, const float (&s)[kTiles][32]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float tops[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};  // none waits for the one before
#pragma unroll
    for (int i = 0; i < kTiles * 16; ++i)
      tops[i % 4] = fmaxf(tops[i % 4], s[i / 16][i % 16 / 2 * 4 + 2 * half + i % 2]);
    float top = fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3]));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    softmax.top[half] = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
  }
}

// Probabilities of a tile's own keys and of the farthest ones in one place: those become `far`.
__device__ __forceinline__ void split(uint32_t (&own)[4][4], uint32_t (&far)[4][4],
                                      const SeenKeys& seen) {
#pragma unroll
  for (int i = 0; i < 32; i += 2) {
    const uint32_t mask = seen.mask_after(i);
    far[i / 8][i % 8 / 2] = own[i / 8][i % 8 / 2] & mask;
    own[i / 8][i % 8 / 2] &= ~mask;
  }
}

// This warp's 16 rows of y, rounded, to `tile`; kAdd: y times row.now, plus what is there times
// row.kept.
template <class T, bool kAdd, int N>
__device__ __forceinline__ void put_rows(const float (&y)[N], const Softmax::Row (&row)[2],
                                         SharedAddress tile) {
#pragma unroll
  for (int k = 0; k < N / 8; ++k) {
    const uint32_t to =
        lane_address<64>(tile + k / 4 * kPanel, threadIdx.x % kWarpgroup / 32, k % 4);
    uint32_t earlier[4], sum[4];
    if constexpr (kAdd) ldmatrix(earlier, to);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Softmax::Row& of = row[i % 2];
      float low = y[8 * k + 2 * i] * of.now, high = y[8 * k + 2 * i + 1] * of.now;
      if constexpr (kAdd) {
        low = fmaf(low_half<T>(earlier[i]), of.kept, low);
        high = fmaf(high_half<T>(earlier[i]), of.kept, high);
      }
      sum[i] = pack<T>(low, high);
    }
    stmatrix(to, sum);
  }
}
}  // namespace weft::attention::hopper
