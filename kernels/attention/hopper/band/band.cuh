// SPDX-License-Identifier: MIT
// Attention over a Band (kernels/attention/band.h) on Hopper: what its kernels share.
// A sequence is seen as columns of rows:
//   position = column + stride * row
// Each column is a causal sequence of its own. `local` has stride 1 and one column.
//
// Tile   64 rows of one (batch, head). A column of more than 32 rows has tiles of its own. Shorter
//        columns share a tile: its row r is row r % column_rows of its column r / column_rows.
// Group  the columns that share tiles; a single column where they do not.
// Span   consecutive tiles of a group: the work item of a thread block.
//
// TMA reads tiles in place through 5-D tensor maps. Rows and columns out of range read as zeros.
#pragma once

#include "kernels/attention/band.h"
#include "kernels/attention/heads_view.h"
#include "kernels/device/pipeline.cuh"
#include "kernels/device/tma.cuh"
#include "kernels/device/warp_roles.cuh"
#include "kernels/device/wgmma.cuh"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace weft::attention::hopper {
using namespace device;

// Indices of the rows of a tile, both included; none where last < first. They may lie outside of 0
// .. 63.
struct TileRows {
  int first, last;
};

struct TileSpan {
  int b, h, group, first, end;
};

// Division by a number that the host knows (Granlund and Montgomery 1994), for dividends below
// 2^31.
struct Divisor {
  uint32_t by, factor, shift;

  static Divisor of(int by) {
    Divisor d{static_cast<uint32_t>(by), 0, 0};
    while (1u << d.shift < d.by) ++d.shift;
    d.factor = static_cast<uint32_t>(((uint64_t{1} << 32) * ((1u << d.shift) - d.by)) / d.by + 1);
    return d;
  }

  // Divides x; the remainder.
  __device__ __forceinline__ int take_from(int& x) const {
    const auto from = static_cast<uint32_t>(x), quotient = (__umulhi(from, factor) + from) >> shift;
    x = static_cast<int>(quotient);
    return static_cast<int>(from - quotient * by);
  }
};

// A pass over a band in tiles, a kernel's argument.
struct BandTiles {
  int stride, rows;  // residue columns, and rows of each
  int reach, skip;   // as in Band; reach is kNoLimit where every row above is seen
  // rows of a tile that each column takes, 64, 32, 16 or 8: 1 << column_shift
  int column_rows, column_shift;
  int groups, tiles;  // groups of columns, and tiles of each
  int batch, heads;
  int spans, span;  // spans of each group, and tiles of each, the last of which may have fewer
  Divisor by_heads, by_spans, by_groups;
  // (2, B, T), packed documents: rows of its column that row t sees back, and that see it as a key,
  // both counted with t itself and at most `reach`. null: as many as the band has.
  const int32_t* reaches;

  static constexpr int kNoLimit = 1 << 30;

  // x: the queries.
  static BandTiles of(const Band& band, const int32_t* reaches, const HeadsView& x) {
    BandTiles t{};
    t.reaches = reaches;
    t.stride = band.stride;
    t.rows = static_cast<int>(x.time / band.stride);
    t.reach = band.reach < t.rows ? band.reach : kNoLimit;
    t.skip = band.skip;
    for (t.column_shift = 6; t.column_shift > 3 && 1 << (t.column_shift - 1) >= t.rows;)
      --t.column_shift;
    t.column_rows = 1 << t.column_shift;
    t.groups = (t.stride + t.columns() - 1) / t.columns();
    t.tiles = (t.rows + kTile - 1) / kTile;
    t.batch = static_cast<int>(x.batch);
    t.heads = static_cast<int>(x.heads);
    t.spans = 1;
    t.span = t.tiles;
    t.by_heads = Divisor::of(std::max(t.heads, 1));
    t.by_spans = Divisor::of(1);
    t.by_groups = Divisor::of(std::max(t.groups, 1));
    return t;
  }

  // Cuts groups into spans so that `blocks` blocks end as soon as possible; a span costs `extra`
  // tiles more.
  void cut(int blocks, double extra) {
    const int64_t columns = int64_t{batch} * heads * groups;
    double least = INFINITY;
    for (int count = 1; count <= std::min(tiles, 512); ++count) {
      const int each = (tiles + count - 1) / count, used = (tiles + each - 1) / each;
      const auto rounds = static_cast<double>((columns * used + blocks - 1) / blocks);
      const double time = rounds * (each + (used > 1 ? extra : 0));
      if (time < least) least = time, spans = used, span = each;
    }
    by_spans = Divisor::of(std::max(spans, 1));
  }

  // Cuts groups into spans of `each` tiles, the last of which may be shorter.
  void cut_to(int each) {
    span = each;
    spans = (tiles + each - 1) / each;
    by_spans = Divisor::of(std::max(spans, 1));
  }

  __host__ __device__ int columns() const { return kTile >> column_shift; }  // of a tile

  // Spans of all groups: what a launch takes, and as kernels count them, which is below 2^31.
  int64_t launched_items() const { return int64_t{batch} * groups * spans * heads; }

  // Of lse and delta: the first of a (batch, head).
  __device__ int64_t first_scalar(int b, int h) const {
    return (int64_t{b} * heads + h) * rows * stride;
  }

  __device__ int work_items() const { return batch * groups * spans * heads; }

  // Tiles just before a tile that some of its rows see: 0, 1 or 2 for a reach of at most 128.
  __host__ __device__ int tiles_back() const {
    const int back = (reach + kTile - 2) / kTile;
    return back < tiles ? back : tiles - 1;
  }

  // Heads are numbered fastest, so that blocks read neighbouring heads of the same positions at a
  // time.
  __device__ __forceinline__ TileSpan work_item(int number) const {
    TileSpan r;
    r.h = by_heads.take_from(number);
    r.first = by_spans.take_from(number) * span;
    r.end = min(r.first + span, tiles);
    r.group = by_groups.take_from(number);
    r.b = number;
    return r;
  }

  // Of row r of a tile; -1: there is none.
  __device__ __forceinline__ int position(int group, int tile, int r) const {
    const int row = tile * kTile + (r & (column_rows - 1)),
              column = group * columns() + (r >> column_shift);
    return row < rows && column < stride ? row * stride + column : -1;
  }

  // The keys that query r of a tile sees in the tile that is `back` tiles before its own. own: its
  // reach.
  __device__ __forceinline__ TileRows keys_of(int r, int back, int own) const {
    return {max(r + 1 - own + back * kTile, r & -column_rows), r - skip + back * kTile};
  }

  // Whether some query of a tile does not see some key of the tile that is `back` tiles before its
  // own.
  __device__ __forceinline__ bool hides(int back) const {
    return column_rows < kTile || reach < (back + 1) * kTile || skip > (back - 1) * kTile + 1;
  }

  // The queries that see key c of a tile in the tile that is `ahead` tiles after its own.
  __device__ __forceinline__ TileRows queries_of(int c, int ahead, int own) const {
    return {c + skip - ahead * kTile,
            min(c + own - ahead * kTile, (c & -column_rows) + column_rows) - 1};
  }
};

// Of this thread's two rows of a tile, where documents may cut it short.
struct Reach {
  int rows[2];
  bool cut = false;  // of some row of the warp

  __device__ __forceinline__ static Reach of(const BandTiles& tiles) {
    return {{tiles.reach, tiles.reach}};
  }

  // The rows are at these positions, -1: there is none. side: 0 queries, 1 keys.
  __device__ __forceinline__ void load(const BandTiles& tiles, int b, const int (&position)[2],
                                       int side) {
    const int64_t first = (int64_t{side} * tiles.batch + b) * tiles.rows * tiles.stride;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      rows[half] = position[half] < 0 ? tiles.reach : tiles.reaches[first + position[half]];
  }

  // By all lanes, where the loaded rows are first needed.
  __device__ __forceinline__ void compare(const BandTiles& tiles) {
    cut = __any_sync(0xffffffffu, min(rows[0], rows[1]) < tiles.reach);
  }
};

// Boxes of `box_rows` rows of a tile, 64 or 16, and one panel of 64 columns. false: TMA does not
// take these strides. `lines`: what the L2 cache fetches at a time; the next head's part of a row
// is often wanted, too.
inline bool describe(CUtensorMap& map, const HeadsView& x, const BandTiles& tiles,
                     int box_rows = kTile,
                     CUtensorMapL2promotion lines = CU_TENSOR_MAP_L2_PROMOTION_L2_128B) {
  const int of_column = std::min(tiles.column_rows, box_rows);
  return encode_tensor_map<5>(
      map, x.dtype, x.data, {x.size, tiles.rows, tiles.stride, x.heads, x.batch},
      {tiles.stride * x.time_stride, x.time_stride, x.head_stride, x.batch_stride},
      {64, of_column, box_rows / of_column, 1, 1}, lines);
}

// A tile of D columns to shared memory, panel after panel; D * 128 bytes are counted at `full`.
template <int D>
__device__ __forceinline__ void copy_tile(SharedAddress to, const CUtensorMap& from,
                                          const BandTiles& tiles, const TileSpan& span, int tile,
                                          Barrier& full) {
#pragma unroll
  for (int panel = 0; panel < D / 64; ++panel)
    tma_load(to + panel * kPanel, from, panel * 64, tile * kTile, span.group * tiles.columns(),
             span.h, span.b, &full);
}

// Keys and values, or queries and dy.
template <int Dqk, int Dv>
struct TilePair {
  Panel x[Dqk / 64], y[Dv / 64];
};

// Loads a tile of both matrices, and has `full` count their bytes.
template <int Dqk, int Dv>
__device__ __forceinline__ void load_pair(TilePair<Dqk, Dv>& to, const CUtensorMap& x,
                                          const CUtensorMap& y, const BandTiles& tiles,
                                          const TileSpan& span, int tile, Barrier& full) {
  full.arrive_expect_tx(sizeof(to));
  copy_tile<Dqk>(to.x, x, tiles, span, tile, full);
  copy_tile<Dv>(to.y, y, tiles, span, tile, full);
}

// Rows of a tile of D columns from shared memory, from `first` on, as many as the boxes of `to`
// have.
template <int D>
__device__ __forceinline__ void store_tile_rows(const CUtensorMap& to, SharedAddress from,
                                                const BandTiles& tiles, const TileSpan& span,
                                                int tile, int first) {
#pragma unroll
  for (int panel = 0; panel < D / 64; ++panel)
    tma_store(to, from + panel * kPanel + first * 128, panel * 64,
              tile * kTile + (first & (tiles.column_rows - 1)),
              span.group * tiles.columns() + (first >> tiles.column_shift), span.h, span.b);
  tma_store_commit_group();
}

struct BandForwardMaps {
  CUtensorMap q, k, v, y, y_rows;  // y_rows: boxes of 16 rows
  BandTiles tiles;
  float* lse;   // (B, H, T)
  float scale;  // of scores, times log2(e)

  // All maps, by the tiles that are there. false: TMA does not take these strides.
  bool describe(const HeadsView& queries, const HeadsView& keys, const HeadsView& values,
                const HeadsView& output) {
    return describe(q, queries, kTile) && describe(k, keys, kTile) && describe(v, values, kTile) &&
           describe(y, output, kTile) && describe(y_rows, output, 16);
  }

 private:
  bool describe(CUtensorMap& map, const HeadsView& x, int rows) const {
    return hopper::describe(map, x, tiles, rows, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
  }
};
}  // namespace weft::attention::hopper
