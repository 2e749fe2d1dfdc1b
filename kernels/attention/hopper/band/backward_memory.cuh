// SPDX-License-Identifier: MIT
// Backward attention over a band (band.cuh) on Hopper: the iterations of a thread block, its shared
// memory, and stores. The kernels over pairs of key tiles (column_memory.cuh) share BandBackward,
// rings and registers.
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

// Consumer w holds dK and dV of every kConsumers-th key tile. x: Dqk columns, y: Dv, in panels
// of 64.
template <int Dqk_, int Dv_, int kConsumers_>
struct BandBackwardMemory {
  static constexpr int Dqk = Dqk_, Dv = Dv_, kConsumers = kConsumers_;
  // Keys and values stay while later queries meet them; queries and dy for a step; y until delta is
  // known.
  static constexpr bool kSmall = Dqk == 64 && Dv == 64;
  static constexpr int kKeyStages = kSmall      ? 5
                                    : Dqk == 64 ? 4
                                                : 3,
                       kStages = kSmall ? 3 : 2, kYStages = kSmall ? 2 : 1,
                       kOut = Dqk == 128 || kSmall ? 2 : 1;  // panels on their way
  static constexpr int kWarps = kWarpgroup / 32, kThreads = (1 + kConsumers) * kWarpgroup;
  using Pipelines = BackwardPipelines<kStages, kKeyStages, kYStages>;

  TilePair<Dqk, Dv> keys[kKeyStages], stages[kStages];
  Panel y[kYStages][Dv / 64];
  Panel ds[kConsumers];  // dS^T of the key tile `back` iterations ago and the queries at hand
  Panel out[kConsumers][kOut];
  QueryScalars64 scalars[kStages];
  TileStep::Shared step[kStages];
  Pipelines pipelines;
  // dS of all consumers has come; one of them has accumulated dQ over it.
  Pipeline<1> ds_pipeline;

  __device__ uint32_t lse(int stage) const { return shared_address(scalars[stage].lse); }

  __device__ uint32_t delta(int stage) const { return shared_address(scalars[stage].delta); }

  // By all threads of the block, before anything else.
  __device__ void init(bool makes_delta) {
    if (threadIdx.x == 0) {
      // Of keys: the consumer that holds the gradients of a tile, and the one that accumulates dQ.
      constexpr int kKeyReaders = 2 * kWarps;
      pipelines.init(kConsumers * kWarps + (makes_delta ? Pipelines::kDeltaWarps : 0), kKeyReaders);
      ds_pipeline.init(kConsumers * kWarps, kWarps);
      fence_proxy_async();
    }
    __syncthreads();
  }
};

// Stores a panel of a tile. TMA clips elements out of range; `add` reduces into memory.
__device__ __forceinline__ void store_panel(const CUtensorMap& to, SharedAddress from, int panel,
                                            const BandTiles& tiles, const TileCoord& at, bool add) {
  const int row = at.tile * kTile, column = at.group * tiles.columns();
  if (add)
    tma_reduce_add(to, from, panel * 64, row, column, at.h, at.b);
  else
    tma_store(to, from, panel * 64, row, column, at.h, at.b);
  tma_store_commit_group();
}
}  // namespace weft::attention::hopper
