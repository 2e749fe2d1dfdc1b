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
struct PairMemory {
  static constexpr int kOwners = 2, kStages = 4, kKeyStages = Shape::kKeyStages,
                       kYStages = Shape::kYStages, kBuffers = Shape::kBuffers;
  static constexpr int kWarps = kWarpgroup / 32, kThreads = (2 + kOwners) * kWarpgroup;
  using Pipelines = BackwardPipelines<kStages, kKeyStages, kYStages>;

  TilePair<64, 64> keys[kKeyStages], stages[kStages];
  Panel y[kYStages];
  Panel ds[kOwners][kBuffers];  // dS^T: rows are keys
  Panel out[Shape::kOutPanels];
  float kept_lse[Shape::kKeptTiles][kTile], kept_delta[Shape::kKeptTiles][kTile];
  Pipelines pipelines;
  // dS of an owner has come, from its warps; the third warpgroup has accumulated dQ over it.
  Pipeline<kBuffers> ds_pipeline[kOwners];

  __device__ void init(bool makes_delta) {
    if (threadIdx.x == 0) {
      constexpr int kKeyReaders = 2 * kWarps;  // the owner, and the warpgroup that accumulates dQ
      pipelines.init(kOwners * kWarps + (makes_delta ? Pipelines::kDeltaWarps : 0), kKeyReaders);
      for (auto& of_owner : ds_pipeline) of_owner.init(kWarps, kWarps);
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

  // Of the queries of a step. They stay until the column ends, and the next column, whose first
  // steps may begin before, has other places where it would meet them.
  __device__ uint32_t lse(const Steps& step) const {
    return shared_address(this->kept_lse[slot(step)]);
  }

  __device__ uint32_t delta(const Steps& step) const {
    return shared_address(this->kept_delta[slot(step)]);
  }

 private:
  __device__ static int slot(const Steps& step) {
    return (kWhole ? step.parity() * kTilesInRegisters : 0) + step.query();
  }
};

// ---- the producer warpgroup: tiles to shared memory, and delta ----

// One thread: loads tiles by TMA.
template <class M>
__device__ __forceinline__ void load_pair_tiles(M& memory, const BandBackward& g) {
  PipelineState<M::kStages> stage;
  PipelineState<M::kKeyStages> key;
  PipelineState<M::kYStages> y;
  const auto load_keys = [&](const TileSpan& span, int tile) {
    memory.pipelines.keys.acquire(key);
    load_pair(memory.keys[key.stage], g.k, g.v, g.tiles, span, tile,
              memory.pipelines.keys.full[key.stage]);
    key.advance();
  };
  for (typename M::Steps step(g.tiles); step; step.next(), stage.advance()) {
    const TileSpan span = step.span();
    if (step.begins_pair()) load_keys(span, step.key(0));
    memory.pipelines.queries.acquire(stage);
    load_pair(memory.stages[stage.stage], g.q, g.dy, g.tiles, span, step.query(),
              memory.pipelines.queries.full[stage.stage]);
    if (step.first_visit() && !g.accumulate) {
      Barrier& y_full = memory.pipelines.y.full[y.stage];
      memory.pipelines.y.acquire(y);
      y_full.arrive_expect_tx(kPanel);
      copy_tile<64>(memory.y[y.stage], g.y, g.tiles, span, step.query(), y_full);
      y.advance();
    }
    if (step.brings_second_key()) load_keys(span, step.key(1));
  }
}

// Warp 1: lse and delta of queries, when they come for the first time.
template <class M>
__device__ __forceinline__ void load_pair_scalars(M& memory, const BandBackward& g) {
  PipelineState<M::kStages> stage;
  for (typename M::Steps step(g.tiles); step; step.next(), stage.advance()) {
    memory.pipelines.queries.acquire(stage);
    if (!step.first_visit()) {
      memory.pipelines.queries.full[stage.stage].arrive();
      continue;
    }
    const TileSpan span = step.span();
    fetch_scalars(memory, step, g, span, step.query(), g.tiles.first_scalar(span.b, span.h));
    memory.pipelines.queries.full[stage.stage].arrive_cp_async();
  }
}

// Warps 2 and 3: delta = dy . y, a row a lane.
template <class T, class M>
__device__ __forceinline__ void make_pair_delta(M& memory, const BandBackward& g) {
  PipelineState<M::kStages> stage;
  PipelineState<M::kYStages> y;
  const int row = threadIdx.x % kTile;
  for (typename M::Steps step(g.tiles); step; step.next(), stage.advance()) {
    memory.pipelines.queries.wait(stage);
    float sum = 0;
    if (step.first_visit()) {
      memory.pipelines.y.wait(y);
      sum = row_product<T, 64>(memory.stages[stage.stage].y, memory.y[y.stage], row);
      st_shared_float(memory.delta(step) + row * 4, sum);
      memory.pipelines.y.release(y.stage);
      y.advance();
    }
    memory.pipelines.delta_full[stage.stage].arrive_warp();
    memory.pipelines.queries.release(stage.stage);
    if (!step.first_visit()) continue;
    const TileSpan span = step.span();
    const int position = g.tiles.position(span.group, step.query(), row);
    if (position >= 0 && step.owns_query())
      g.delta[g.tiles.first_scalar(span.b, span.h) + position] = sum;
  }
}

template <class T, class M>
__device__ __forceinline__ void produce_pairs(M& memory, const BandBackward& g) {
  switch (threadIdx.x / 32) {
    case 0:
      if (threadIdx.x == 0) load_pair_tiles(memory, g);
      break;
    case 1: load_pair_scalars(memory, g); break;
    default:
      if (!g.accumulate) make_pair_delta<T>(memory, g);
  }
}

// The memory map of README.md.
static_assert(sizeof(ColumnMemory<true>) == 225'552);
static_assert(sizeof(ColumnMemory<false>) == 221'440);
}  // namespace weft::attention::hopper
