// SPDX-License-Identifier: MIT
// Which pairs of a tile count: by the words of a TileMap's mask, or by the edges of a band. A
// thread has scores of two rows, row_of(0) and row_of(1).
#pragma once

#include "kernels/attention/hopper/band/band.cuh"

#include <cmath>
#include <cstdint>

namespace weft::attention::hopper {
// ---- lists: a mask word a row ----

// Two mask words, shifted so that bit 8 j and 8 j + 1 are this thread's columns.
struct MaskWords {
  uint64_t row[2] = {~uint64_t{0}, ~uint64_t{0}};

  __device__ __forceinline__ void load(const uint64_t* masks, int mask) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      row[half] =
          __ldg(masks + static_cast<int64_t>(mask) * kTile + row_of(half)) >> (threadIdx.x % 4 * 2);
  }

  // Of columns 8 j + 2 t + i.
  __device__ __forceinline__ bool at(int half, int j, int i) const {
    return row[half] >> (8 * j + i) & 1;
  }

  __device__ __forceinline__ void apply(float (&s)[32], float value) const {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (!at(half, j, i)) s[4 * j + 2 * half + i] = value;
  }
};

// ---- bands, rows are queries: short ones, whose documents may cut them ----

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

// ---- bands, rows are queries: far ones ----

// What forward_mainloop() hides by: step() gives the distance of a key tile that hides something.
template <bool kWindow>
struct BandMasks {
  const BandTiles& tiles;
};

template <bool kWindow>
__device__ __forceinline__ BandMasks<kWindow> hidden_at(const BandMasks<kWindow>& masks, int) {
  return masks;
}

// Scores of keys that a query does not see become -inf; only 16 x 16 around the diagonal are tested
// singly.
template <bool kWindow>
__device__ __forceinline__ void hide(float (&s)[32], const BandMasks<kWindow>& masks, int back) {
  const int thread = this_thread() % kWarpgroup, warp = thread / 32 * 16,
            offset = back * kTile - masks.tiles.skip,
            last[2] = {warp + thread % 32 / 4 + offset - thread % 4 * 2,
                       warp + thread % 32 / 4 + 8 + offset - thread % 4 * 2};
#pragma unroll
  for (int columns = 0; columns < kTile; columns += 16) {
    if (columns + 15 <= warp + offset) continue;  // all rows of this warp see them
#pragma unroll
    for (int i = columns / 2; i < columns / 2 + 8; ++i)
      if (i / 4 * 8 + i % 2 > last[i / 2 % 2]) s[i] = -INFINITY;
  }
  if constexpr (kWindow) {
    if (masks.tiles.reach >= (back + 1) * kTile) return;
    const int seen = masks.tiles.reach - masks.tiles.skip;  // keys of a query, at most
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (i / 4 * 8 + i % 2 <= last[i / 2 % 2] - seen) s[i] = -INFINITY;
  }
}

// ---- bands, rows are keys ----

// Keeps the pairs of the band: queries from `first_query` on, of the tile `ahead` tiles after the
// keys.
template <int N>
__device__ __forceinline__ void hide_from_queries(float (&s)[N], const BandTiles& tiles, int ahead,
                                                  int first_query, const Reach& reach) {
  if (!tiles.hides(ahead) && !reach.cut) return;
  const int column = first_query + static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const TileRows seeing = tiles.queries_of(row_of(half), ahead, reach.rows[half]);
    const int first = seeing.first - column;
    const auto count = static_cast<unsigned>(max(seeing.last - seeing.first + 1, 0));
#pragma unroll
    for (int j = 0; j < N / 4; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (static_cast<unsigned>(8 * j + i - first) >= count) s[4 * j + 2 * half + i] = 0;
  }
}
}  // namespace weft::attention::hopper
