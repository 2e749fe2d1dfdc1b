// SPDX-License-Identifier: MIT
// How tiles reach the warpgroups of the backward kernels over bands: the iterations of a thread
// block, shared memory and barriers, and the producer, which loads tiles and computes delta. Of
// this the kernels over pairs of key tiles (pairs.cuh) share BandBackward, barriers and registers.
// A span owns the dK and dV of its tiles, and goes on over the queries that see the last of them.
// It leaves out the dQ of its first queries: the span before has their earlier keys. So one block
// writes each gradient.
#pragma once

#include "kernels/attention/hopper/band/band.cuh"
#include "kernels/attention/hopper/launch.cuh"
#include "kernels/attention/hopper/stream.cuh"

namespace weft::attention::hopper {
struct TileCoord {
  int tile, group, h, b;

  __device__ __forceinline__ static TileCoord of(const TileSpan& span, int tile) {
    return {tile, span.group, span.h, span.b};
  }
};

struct BandBackward {
  CUtensorMap q, k, v, y, dy, dq, dk, dv;
  BandTiles tiles;
  const float* lse;  // (B, H, T)
  float* delta;      // (B, H, T): written where !accumulate, else read
  float scale;
  bool accumulate;  // adds to gradients that an earlier pass left

  static BandBackward of(const AttentionBackward& g, const AttentionPass& pass,
                         const BandTiles& tiles) {
    BandBackward x{
        .tiles = tiles,
        .lse = static_cast<const float*>(g.lse.data),
        .delta = static_cast<float*>(g.delta.data),
        .scale = static_cast<float>(g.scale),
        .accumulate = pass.accumulate,
    };
    const bool described = describe(x.q, g.q, tiles) && describe(x.k, g.k, tiles) &&
                           describe(x.v, g.v, tiles) && describe(x.y, g.y, tiles) &&
                           describe(x.dy, g.dy, tiles) && describe(x.dq, g.dq, tiles) &&
                           describe(x.dk, g.dk, tiles) && describe(x.dv, g.dv, tiles);
    WEFT_CHECK(described || tiles.launched_items() == 0, kTmaRefuses);
    return x;
  }

  // delta of a row of a tile of queries, where there is such a row and this block writes it.
  __device__ __forceinline__ void put_delta(const TileCoord& at, int row, float x,
                                            bool owned) const {
    const int position = tiles.position(at.group, at.tile, row);
    if (owned && position >= 0) delta[tiles.first_scalar(at.b, at.h) + position] = x;
  }
};

// ---- iterations ----

// The iterations of a thread block: the tiles of its spans, one each.
class TileIterator {
 public:
  __device__ explicit TileIterator(const BandTiles& tiles)
      : tiles_(tiles),
        item_(blockIdx.x) {
    open();
  }

  __device__ explicit operator bool() const { return tile_ < end_; }

  __device__ __forceinline__ void next() {
    if (++tile_ < end_) return;
    item_ += gridDim.x;
    open();
  }

  __device__ const TileSpan& span() const { return span_; }

  __device__ int tile() const { return tile_; }

  // Key tiles before this one that its queries meet.
  __device__ int met_before() const { return min(tile_ - span_.first, tiles_.tiles_back()); }

  __device__ bool is_last() const { return tile_ + 1 == end_; }

  __device__ bool owns_queries() const {
    return span_.first == 0 || tile_ - span_.first >= tiles_.tiles_back();
  }

  // Whether dK and dV of the tile `back` iterations ago belong to this span.
  __device__ bool owns_keys(int back) const { return tile_ - back < span_.end; }

 private:
  __device__ __forceinline__ void open() {
    tile_ = end_ = 0;
    if (item_ >= tiles_.work_items()) return;
    span_ = tiles_.work_item(item_);
    tile_ = span_.first;
    end_ = min(span_.end + tiles_.tiles_back(), tiles_.tiles);
  }

  const BandTiles& tiles_;
  int item_, tile_ = 0, end_ = 0;
  TileSpan span_{};
};

struct TileStep {
  struct alignas(16) Shared {  // as it lies in shared memory
    int words[8];
  };

  TileCoord coord;
  int met_before;  // -1: none, there are no more
  bool is_last, owns_queries;
  int owned_keys;  // bit b: TileIterator::owns_keys(b)

  __device__ __forceinline__ static TileStep of(const TileIterator& iterator) {
    const TileSpan& span = iterator.span();
    TileStep step{TileCoord::of(span, iterator.tile()), iterator.met_before(), iterator.is_last(),
                  iterator.owns_queries(), 0};
    for (int back = 0; back <= step.met_before; ++back)
      step.owned_keys |= static_cast<int>(iterator.owns_keys(back)) << back;
    return step;
  }

  __device__ __forceinline__ void write(Shared& to) const {
    const int flags = met_before < 0 ? -1
                                     : met_before | static_cast<int>(is_last) << 8 |
                                           static_cast<int>(owns_queries) << 9 | owned_keys << 16;
    st_shared_int4(shared_address(to.words), {coord.tile, coord.group, coord.h, coord.b});
    st_shared_int(shared_address(&to.words[4]), flags);
  }

  // All but the coordinates.
  __device__ __forceinline__ static TileStep read(const Shared& from) {
    const int flags = warp_uniform(ld_shared_int(shared_address(&from.words[4])));
    return {{},
            flags < 0 ? -1 : flags & 0xff,
            (flags >> 8 & 1) != 0,
            (flags >> 9 & 1) != 0,
            flags >> 16};
  }

  __device__ __forceinline__ static TileCoord read_coord(const Shared& from) {
    const int4 x = ld_shared_int4(shared_address(from.words));
    return {x.x, x.y, x.z, x.w};
  }
};

// ---- shared memory ----

// Of the queries of a tile.
struct QueryScalars64 {
  float lse[kTile], delta[kTile];
};

// The barriers that each backward kernel over bands has. What ends a phase, and who arrives:
//   queries.full   queries, dy, lse and delta have come: the thread that loads rows by TMA, and 32
//                  lanes that fetch lse (and delta, where an earlier pass computed it)
//   queries.empty  nobody reads the stage any more: warps of consumers, and those that make delta
//   delta_full     delta is there, where this pass computes it: the warps that do
//   keys.full      keys and values have come: the thread that loads them
//   keys.empty     nobody reads them any more: who multiplies with them, as each kernel says
//   y.full         y has come: the thread that loads it
//   y.empty        delta is computed from it: the warps that do
template <int kStages, int kKeyStages, int kYStages>
struct BackwardPipelines {
  static constexpr int kDeltaWarps = 2;
  Pipeline<kStages> queries;
  Pipeline<kKeyStages> keys;
  Pipeline<kYStages> y;
  Barrier delta_full[kStages];

  // By one thread.
  __device__ void init(int query_readers, int key_readers) {
    constexpr int kScalarLanes = 32, kLoaders = 1;
    queries.init(kLoaders + kScalarLanes, query_readers);
    keys.init(kLoaders, key_readers);
    y.init(kLoaders, kDeltaWarps);
    for (auto& full : delta_full) full.init(kDeltaWarps);
  }
};

// Four warpgroups: a producer, two owners of keys, one that accumulates dQ. The owners get what the
// others leave.
inline constexpr RegisterSplit kOwnerRegisters = {
    .producer = 32,
    .consumer = (512 - 32 - 96) / 2,
    .extra = 96,
};

// ---- the producer ----

// One thread: loads tiles by TMA, and says what they are. Without stages for y other warps load y.
template <class M>
__device__ __forceinline__ void load_tiles(M& memory, const BandBackward& g) {
  PipelineState<M::kStages> stage;
  PipelineState<M::kKeyStages> key;
  PipelineState<M::kYStages> y;
  for (TileIterator iterator(g.tiles); iterator; iterator.next()) {
    memory.pipelines.queries.acquire(stage);
    TileStep::of(iterator).write(memory.step[stage.stage]);
    load_pair(memory.stages[stage.stage], g.q, g.dy, g.tiles, iterator.span(), iterator.tile(),
              memory.pipelines.queries.full[stage.stage]);
    memory.pipelines.keys.acquire(key);
    load_pair(memory.keys[key.stage], g.k, g.v, g.tiles, iterator.span(), iterator.tile(),
              memory.pipelines.keys.full[key.stage]);
    if constexpr (M::kYStages > 0) {
      if (!g.accumulate) {
        Barrier& y_full = memory.pipelines.y.full[y.stage];
        memory.pipelines.y.acquire(y);
        y_full.arrive_expect_tx(sizeof(memory.y[0]));
        copy_tile<M::Dv>(memory.y[y.stage], g.y, g.tiles, iterator.span(), iterator.tile(), y_full);
        y.advance();
      }
    }
    stage.advance(), key.advance();
  }
  memory.pipelines.queries.acquire(stage);
  TileStep{{}, -1}.write(memory.step[stage.stage]);
  memory.pipelines.queries.full[stage.stage].arrive();
}

// A warp: starts fetching lse of queries, and delta where an earlier pass made it.
// cp_async_mbarrier_arrive() says when they are there. first: g.tiles.first_scalar() of the span.
template <class M, class At>
__device__ __forceinline__ void fetch_scalars(M& memory, const At& at, const BandBackward& g,
                                              const TileSpan& span, int tile, int64_t first) {
#pragma unroll 1  // registers are scarce
  for (int row = threadIdx.x % 32; row < kTile; row += 32) {
    const int position = g.tiles.position(span.group, tile, row);
    cp_async_4(memory.lse(at) + row * 4, g.lse + first + max(position, 0), position >= 0);
    if (g.accumulate)
      cp_async_4(memory.delta(at) + row * 4, g.delta + first + max(position, 0), position >= 0);
  }
}

// Warp 1: lse and delta of queries.
template <class M>
__device__ __forceinline__ void load_scalars(M& memory, const BandBackward& g) {
  PipelineState<M::kStages> stage;
  for (TileIterator iterator(g.tiles); iterator; iterator.next()) {
    const int64_t first = g.tiles.first_scalar(iterator.span().b, iterator.span().h);
    memory.pipelines.queries.acquire(stage);
    fetch_scalars(memory, stage.stage, g, iterator.span(), iterator.tile(), first);
    memory.pipelines.queries.full[stage.stage].arrive_cp_async();
    stage.advance();
  }
  memory.pipelines.queries.acquire(stage);
  memory.pipelines.queries.full[stage.stage].arrive();
}

// The dot product of row `row` of two tiles of D columns.
template <class T, int D>
__device__ __forceinline__ float row_product(SharedAddress x, SharedAddress y, int row) {
  float sum = 0;
#pragma unroll 2
  for (int chunk = 0; chunk < D / 8; ++chunk) {
    const uint32_t offset =
        chunk / 8 * kPanel + row * 128 + ((chunk % 8 ^ static_cast<int>(swizzle<64>(row))) << 4);
    sum = add_dot<T>(sum, ld_shared_16(x + offset), ld_shared_16(y + offset));
  }
  return sum;
}

// Warps 2 and 3: delta = dy . y, a row a lane.
template <class T, class M>
__device__ __forceinline__ void make_delta(M& memory, const BandBackward& g) {
  PipelineState<M::kStages> stage;
  PipelineState<M::kYStages> y;
  const int row = threadIdx.x % kTile;
  for (;;) {
    memory.pipelines.queries.wait(stage);
    const TileStep step = TileStep::read(memory.step[stage.stage]);
    if (step.met_before < 0) return;
    const TileCoord at = TileStep::read_coord(memory.step[stage.stage]);
    memory.pipelines.y.wait(y);
    const float sum = row_product<T, M::Dv>(memory.stages[stage.stage].y, memory.y[y.stage], row);
    st_shared_float(memory.delta(stage.stage) + row * 4, sum);
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      memory.pipelines.delta_full[stage.stage].arrive();
      memory.pipelines.y.empty[y.stage].arrive();
      memory.pipelines.queries.empty[stage.stage].arrive();
    }
    g.put_delta(at, row, sum, step.owns_queries);
    stage.advance(), y.advance();
  }
}

template <class T, class M>
__device__ __forceinline__ void produce(M& memory, const BandBackward& g) {
  switch (threadIdx.x / 32) {
    case 0:
      if (threadIdx.x == 0) load_tiles(memory, g);
      break;
    case 1: load_scalars(memory, g); break;
    default:
      if (!g.accumulate) make_delta<T>(memory, g);
  }
}

}  // namespace weft::attention::hopper
