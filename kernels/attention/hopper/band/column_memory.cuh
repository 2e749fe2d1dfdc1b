// SPDX-License-Identifier: MIT
// Backward attention over whole residue columns of more than 128 rows: the order of iterations, and
// what the warpgroups share, also over windows (window_backward.cu).
//   A thread block takes a column, its key tiles two at a time. Two warpgroups own one of them each
//   and
// accumulate its dK and dV while the queries of the column stream by, from the first that see it
// on. A third accumulates dQ over both, from dS in shared memory. Queries come again with the next
// two key tiles.
#pragma once

#include "kernels/attention/hopper/band/backward_producer.cuh"
#include "kernels/attention/select.h"

namespace weft::attention::hopper {
// A tile of queries, and key tiles 2 pair and 2 pair + 1 where they see it. kTurns: every second
// pair goes from the last queries to the first, and begins with what the L2 cache holds.
template <bool kTurns>
class ColumnSteps {
 public:
  __device__ explicit ColumnSteps(const BandTiles& tiles)
      : tiles_(tiles),
        item_(blockIdx.x) {}

  __device__ explicit operator bool() const { return item_ < tiles_.work_items(); }

  __device__ __forceinline__ void next() {
    if (!ends_pair()) {
      query_ += ascends() ? 1 : -1;
      return;
    }
    ++pair_;
    if (has_key(0)) {
      query_ = ascends() ? 2 * pair_ : tiles_.tiles - 1;
      return;
    }
    item_ += gridDim.x;
    parity_ ^= 1;
    pair_ = query_ = 0;
  }

  // Looked up anew: registers are scarce.
  __device__ TileSpan span() const { return tiles_.work_item(item_); }

  __device__ int unit() const { return item_; }

  __device__ int pair() const { return pair_; }

  __device__ int query() const { return query_; }

  __device__ int parity() const { return parity_; }  // of the column

  __device__ int key(int i) const { return 2 * pair_ + i; }

  __device__ bool has_key(int i) const { return key(i) < tiles_.tiles; }

  __device__ bool ascends() const { return !kTurns || pair_ % 2 == 0; }

  __device__ bool begins_pair() const { return query_ == (ascends() ? key(0) : tiles_.tiles - 1); }

  __device__ bool ends_pair() const { return query_ == (ascends() ? tiles_.tiles - 1 : key(0)); }

  // Whether key tile i of the pair meets no more queries.
  __device__ bool ends_key(int i) const { return ascends() ? ends_pair() : query_ == key(i); }

  __device__ bool brings_second_key() const { return begins_pair() && has_key(1); }

  // Whether gradients of the queries, and of key tile i, are written by this block.
  __device__ bool owns_query() const { return true; }

  __device__ bool owns_key(const TileSpan&, int) const { return true; }

  __device__ bool first_visit() const { return pair_ == 0; }

  __device__ bool last_visit() const { return query_ / 2 == pair_; }

 private:
  const BandTiles& tiles_;
  int item_, pair_ = 0, query_ = 0, parity_ = 0;
};

// Which of the two owners has key tile i of a pair: later tiles meet fewer queries, so they take
// turns.
__device__ __forceinline__ int owner_of(int pair, int i) { return (pair + i) & 1; }

// Shared memory of a block that takes key tiles two at a time; heads of 64. Shape: kKeyStages, of
// the keys and values of a tile; kYStages, of y; kBuffers, of dS of each owner; kOutPanels, for
// rows on their way to global memory, those of the owners first; kKeptTiles, of queries, whose lse
// and delta stay.
template <class Shape>
struct PairMemory : BackwardRings<PairMemory<Shape>> {
  using Rings = BackwardRings<PairMemory>;
  using Rings::base, Rings::kWarps, Rings::kDeltaWarps, Rings::y_full;
  static constexpr int kX = kPanel, kY = kPanel, kOwners = 2, kStages = 4,
                       kKeyStages = Shape::kKeyStages, kYStages = Shape::kYStages,
                       kBuffers = Shape::kBuffers;
  static constexpr int kThreads = (2 + kOwners) * kWarpgroup;

  struct SharedStorage {
    TilePair<kX, kY> keys[kKeyStages], stages[kStages];
    char y[kYStages][kY];
    Panel ds[kOwners][kBuffers];  // dS^T: rows are keys
    Panel out[Shape::kOutPanels];
    float lse[Shape::kKeptTiles][kTile], delta[Shape::kKeptTiles][kTile];
    uint64_t full[kStages], empty[kStages], delta_full[kStages], keys_full[kKeyStages],
        keys_empty[kKeyStages], y_full[kYStages], y_empty[kYStages], ds_full[kOwners][kBuffers],
        ds_empty[kOwners][kBuffers];
  };

  static constexpr int kBytes = sizeof(SharedStorage) + kPanelAlignment;
  static_assert(kBytes <= 227 * 1024);

  __device__ uint32_t y(int at) const { return WEFT_AT(y) + at * kY; }

  __device__ uint32_t ds(int owner, int buffer) const {
    return WEFT_AT(ds) + (owner * kBuffers + buffer) * kPanel;
  }

  __device__ uint32_t out(int panel) const { return WEFT_AT(out) + panel * kPanel; }

  // Address of lse in slot `place`.
  __device__ uint32_t lse_at(int place) const { return WEFT_AT(lse) + place * kTile * 4; }

  __device__ uint32_t delta_at(int place) const {
    return lse_at(place) + Shape::kKeptTiles * kTile * 4;
  }

  // dS of an owner has come, from its warps; the third warpgroup has accumulated dQ over it.
  __device__ uint32_t ds_full(int owner, int buffer) const {
    return y_full(2 * kYStages + owner * kBuffers + buffer);
  }

  __device__ uint32_t ds_empty(int owner, int buffer) const {
    return ds_full(kOwners + owner, buffer);
  }

  __device__ void init(bool makes_delta) const {
    if (threadIdx.x == 0) {
      // Keys: the owner, and the warpgroup that accumulates dQ.
      Rings::init_rings(kOwners * kWarps + (makes_delta ? kDeltaWarps : 0), 2 * kWarps);
      for (int i = 0; i < kOwners * kBuffers; ++i)
        mbarrier_init(ds_full(0, i), kWarps), mbarrier_init(ds_empty(0, i), kWarps);
      fence_proxy_async();
    }
    __syncthreads();
  }
};

// kWhole: columns of up to kTilesInRegisters tiles keep dQ in registers; else of up to
// kTilesOfColumn.
template <bool kWhole>
struct ColumnPairs {
  static constexpr int kKeyStages = 5, kYStages = kWhole ? 2 : 1, kBuffers = 2;
  static constexpr int kOutPanels = 2 + 1;  // the last is that of dQ
  static constexpr int kKeptTiles = kWhole ? 2 * kTilesInRegisters : kTilesOfColumn;
};

template <bool kWhole_>
struct ColumnMemory : PairMemory<ColumnPairs<kWhole_>> {
  static constexpr bool kWhole = kWhole_;
  using Steps = ColumnSteps<!kWhole>;

  __device__ static ColumnMemory of(const char* shared) { return {{{first_panel(shared)}}}; }

  // Of the queries of a step. They stay until the column ends, and the next column, whose first
  // steps may begin before, has other places where it would meet them.
  __device__ uint32_t lse(const Steps& step) const { return this->lse_at(place(step)); }

  __device__ uint32_t delta(const Steps& step) const { return this->delta_at(place(step)); }

 private:
  __device__ static int place(const Steps& step) {
    return (kWhole ? step.parity() * kTilesInRegisters : 0) + step.query();
  }
};

// ---- the producer warpgroup: tiles to shared memory, and delta ----

// One thread: loads tiles by TMA.
template <class M>
__device__ __forceinline__ void load_pair_tiles(const M& memory, const BandBackward& g) {
  PipelineState<M::kStages> stage;
  PipelineState<M::kKeyStages> key;
  PipelineState<M::kYStages> y;
  const auto load_keys = [&](const TileSpan& span, int tile) {
    const uint32_t full = memory.keys_full(key.stage);
    mbarrier_wait(memory.keys_empty(key.stage), key.parity ^ 1);
    mbarrier_arrive_expect_tx(full, 2 * kPanel);
    copy_tile<64>(memory.k(key.stage), g.k, g.tiles, span, tile, full);
    copy_tile<64>(memory.v(key.stage), g.v, g.tiles, span, tile, full);
    key.advance();
  };
  for (typename M::Steps step(g.tiles); step; step.next(), stage.advance()) {
    const TileSpan span = step.span();
    if (step.begins_pair()) load_keys(span, step.key(0));
    const uint32_t full = memory.full(stage.stage);
    mbarrier_wait(memory.empty(stage.stage), stage.parity ^ 1);
    mbarrier_arrive_expect_tx(full, 2 * kPanel);
    copy_tile<64>(memory.q(stage.stage), g.q, g.tiles, span, step.query(), full);
    copy_tile<64>(memory.dy(stage.stage), g.dy, g.tiles, span, step.query(), full);
    if (step.first_visit() && !g.accumulate) {
      const uint32_t y_full = memory.y_full(y.stage);
      mbarrier_wait(memory.y_empty(y.stage), y.parity ^ 1);
      mbarrier_arrive_expect_tx(y_full, kPanel);
      copy_tile<64>(memory.y(y.stage), g.y, g.tiles, span, step.query(), y_full);
      y.advance();
    }
    if (step.brings_second_key()) load_keys(span, step.key(1));
  }
}

// Warp 1: lse and delta of queries, when they come for the first time.
template <class M>
__device__ __forceinline__ void load_pair_scalars(const M& memory, const BandBackward& g) {
  PipelineState<M::kStages> stage;
  for (typename M::Steps step(g.tiles); step; step.next(), stage.advance()) {
    mbarrier_wait(memory.empty(stage.stage), stage.parity ^ 1);
    if (!step.first_visit()) {
      mbarrier_arrive(memory.full(stage.stage));
      continue;
    }
    const TileSpan span = step.span();
    fetch_scalars(memory, step, g, span, step.query(), g.tiles.first_scalar(span.b, span.h));
    cp_async_mbarrier_arrive(memory.full(stage.stage));
  }
}

// Warps 2 and 3: delta = dy . y, a row a lane.
template <class T, class M>
__device__ __forceinline__ void make_pair_delta(const M& memory, const BandBackward& g) {
  PipelineState<M::kStages> stage;
  PipelineState<M::kYStages> y;
  const int row = threadIdx.x % kTile;
  for (typename M::Steps step(g.tiles); step; step.next(), stage.advance()) {
    mbarrier_wait(memory.full(stage.stage), stage.parity);
    float sum = 0;
    if (step.first_visit()) {
      mbarrier_wait(memory.y_full(y.stage), y.parity);
      sum = row_product<T, 64>(memory.dy(stage.stage), memory.y(y.stage), row);
      st_shared_float(memory.delta(step) + row * 4, sum);
      mbarrier_arrive_warp(memory.y_empty(y.stage));
      y.advance();
    }
    mbarrier_arrive_warp(memory.delta_full(stage.stage));
    mbarrier_arrive_warp(memory.empty(stage.stage));
    if (!step.first_visit()) continue;
    const TileSpan span = step.span();
    const int position = g.tiles.position(span.group, step.query(), row);
    if (position >= 0 && step.owns_query())
      g.delta[g.tiles.first_scalar(span.b, span.h) + position] = sum;
  }
}

template <class T, class M>
__device__ __forceinline__ void produce_pairs(const M& memory, const BandBackward& g) {
  switch (threadIdx.x / 32) {
    case 0:
      if (threadIdx.x == 0) load_pair_tiles(memory, g);
      break;
    case 1: load_pair_scalars(memory, g); break;
    default:
      if (!g.accumulate) make_pair_delta<T>(memory, g);
  }
}
}  // namespace weft::attention::hopper
