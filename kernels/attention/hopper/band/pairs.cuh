// SPDX-License-Identifier: MIT
// Backward attention over far bands takes key tiles two at a time: the order of steps over columns
// and windows, shared memory and its producer, and the warpgroups that own dK and dV and accumulate
// dQ.
#pragma once

#include "kernels/attention/hopper/band/gradients.cuh"

namespace weft::attention::hopper {
// ---- steps ----

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

// A tile of queries and the two key tiles at hand: the first, and the one after it where the span
// has it.
class WindowSteps {
 public:
  static constexpr int kMostBack = 4;  // tiles before a query tile that it sees

  __device__ explicit WindowSteps(const BandTiles& tiles)
      : tiles_(tiles),
        item_(blockIdx.x) {
    open(0);
  }

  __device__ explicit operator bool() const { return item_ < tiles_.work_items(); }

  __device__ __forceinline__ void next() {
    if (!ends_pair()) {
      ++query_;
      return;
    }
    key_ += 2;
    query_ = key_;
    if (key_ < end_) return;
    item_ += this_grid();
    open(key_ + offset_);
  }

  // Looked up anew: registers are scarce.
  __device__ TileSpan span() const { return tiles_.work_item(item_); }

  // Tiles of this block's spans are numbered on and on; pairs begin with even numbers.
  __device__ int number() const { return query_ + offset_; }

  __device__ int pair() const { return (key_ + offset_) / 2; }

  __device__ int query() const { return query_; }

  __device__ int key(int i) const { return key_ + i; }

  __device__ bool has_key(int i) const { return key_ + i < end_; }

  __device__ bool meets(int i) const {
    return has_key(i) && query_ >= key_ + i && query_ <= key_ + i + back();
  }

  __device__ bool begins_pair() const { return query_ == key_; }

  __device__ bool ends_pair() const { return query_ == min(key_ + 1 + back(), end_ - 1); }

  __device__ bool ends_key(int i) const { return query_ == min(key_ + i + back(), end_ - 1); }

  __device__ bool brings_second_key() const { return query_ == key_ + 1; }

  __device__ bool owns_query() const { return first_ == 0 || query_ - first_ >= back(); }

  __device__ bool owns_key(const TileSpan& span, int i) const { return key_ + i < span.end; }

  __device__ bool first_visit() const { return key_ == first_ || query_ >= key_ + back(); }

  __device__ bool last_visit() const { return query_ < key_ + 2; }

 private:
  __device__ int back() const { return tiles_.tiles_back(); }

  __device__ __forceinline__ void open(int number) {
    if (item_ >= tiles_.work_items()) return;
    const TileSpan span = tiles_.work_item(item_);
    first_ = key_ = query_ = span.first;
    end_ = min(span.end + back(), tiles_.tiles);
    offset_ = number - first_;
  }

  const BandTiles& tiles_;
  int item_, first_ = 0, end_ = 0, key_ = 0, query_ = 0, offset_ = 0;
};

// ---- shared memory ----

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

// ---- the producer ----

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

// ---- the consumers ----

// A warpgroup that owns key tiles: dK and dV.
template <class T, class M>
class KeyOwner {
 public:
  using Steps = typename M::Steps;

  __device__ KeyOwner(M& memory, const BandBackward& g)
      : memory_(memory),
        g_(g),
        own_(warp_uniform(threadIdx.x / kWarpgroup - 1)) {}

  __device__ __forceinline__ void run() {
    Steps step(g_.tiles);
    while (step) {
      const int mine = owner_of(step.pair(), 0) == own_ ? 0 : 1;
      const bool two = step.has_key(1);
      // The queries of the first key tile do not see the second; the last ones may not see the
      // first.
      if (mine == 1 && step.query() < step.key(1)) pass(step);
      if ((mine == 0 || two) && !own(step, mine)) pass(step);
      key_.advance();
      if (two) key_.advance();
    }
    if (is_warpgroup_leader()) tma_store_wait_group_read<0>();
  }

 private:
  __device__ __forceinline__ void pass(Steps& step) {
    memory_.pipelines.queries.wait(stage_);
    memory_.pipelines.queries.release(stage_.stage);
    stage_.advance();
    step.next();
  }

  // The mainloop of a key tile; the MMAs that end an iteration overlap the next. true: the pair has
  // ended.
  __device__ __forceinline__ bool own(Steps& step, int mine) {
    PipelineState<M::kKeyStages> key = key_;
    if (mine == 1) key.advance();
    memory_.pipelines.keys.wait(key);
    const int key_stage = warp_uniform(key.stage);
    issue_scores(key_stage, take_stage());
    meet<true>(step, mine);
    int add = 0;
    for (; !step.ends_key(mine); add = 1) {
      const int before = warp_uniform(stage_.stage);
      stage_.advance();
      step.next();
      issue_scores(key_stage, take_stage());
      issue_gradients(before, add);
      meet<false>(step, mine);
    }
    const int last = warp_uniform(stage_.stage);
    issue_gradients(last, add);
    wgmma_wait_group<0>();
    pin(dk_), pin(dv_);
    memory_.pipelines.queries.release(last);
    memory_.pipelines.keys.release(key_stage);
    const TileSpan span = step.span();
    if (step.owns_key(span, mine)) {
      const TileCoord at = TileCoord::of(span, step.key(mine));
      send_panel<T>(warpgroup_index(), dk_, 0, g_.scale, memory_.out[own_], g_.dk, g_, at);
      send_panel<T>(warpgroup_index(), dv_, 0, 1.0f, memory_.out[own_], g_.dv, g_, at);
    }
    const bool ends = step.ends_pair();
    stage_.advance();
    step.next();
    return ends;
  }

  __device__ __forceinline__ int take_stage() const {
    memory_.pipelines.queries.wait(stage_);
    return warp_uniform(stage_.stage);
  }

  __device__ __forceinline__ void issue_scores(int key_stage, int stage) {
    pin(s_), pin(ds_);
    wgmma_fence();
    mma_abt<T, 64>(s_, memory_.keys[key_stage].x, memory_.stages[stage].x);
    wgmma_commit_group();
    mma_abt<T, 64>(ds_, memory_.keys[key_stage].y, memory_.stages[stage].y);
    wgmma_commit_group();
  }

  // A group: what the queries of a stage add to dV and dK, or what these begin with.
  __device__ __forceinline__ void issue_gradients(int stage, int add) {
    pin(dv_), pin(dk_);
    wgmma_fence();
    const Descriptor dy = descriptor(memory_.stages[stage].y),
                     q = descriptor(memory_.stages[stage].x);
    mma_ab<T>(dv_, p_operand_, dy, add);
    mma_ab<T>(dk_, ds_operand_, q, add);
    wgmma_commit_group();
  }

  // P^T and dS^T of the queries at hand; the MMAs of the stage before end meanwhile.
  template <bool kFirst>
  __device__ __forceinline__ void meet(const Steps& step, int mine) {
    const int buffer = ds_at_.stage;
    wgmma_wait_group<(kFirst ? 1 : 2)>();
    pin(s_);
    exponentiate(s_, memory_.lse(step), g_.scale * kLog2E);
    hide_from_queries(s_, g_.tiles, step.query() - step.key(mine), 0, Reach::of(g_.tiles));
    if (!g_.accumulate) memory_.pipelines.delta_full[stage_.stage].wait(stage_.parity);
    memory_.ds_pipeline[own_].acquire(ds_at_);
    wgmma_wait_group<0>();
    pin(ds_);
    if constexpr (!kFirst) {
      pin(dk_), pin(dv_), pin(p_operand_), pin(ds_operand_);
      memory_.pipelines.queries.release(warp_uniform(stage_.stage_back(1)));
    }
    differentiate(ds_, s_, memory_.delta(step));
    round_to_operand<T>(ds_operand_, ds_);
#pragma unroll
    for (int k = 0; k < 4; ++k)  // store_operand() here keeps other addresses in registers
      stmatrix(lane_address<64>(memory_.ds[own_][buffer], threadIdx.x % kWarpgroup / 32, k),
               ds_operand_[k]);
    fence_proxy_async();
    memory_.ds_pipeline[own_].full[buffer].arrive_warp();
    ds_at_.advance();
    round_to_operand<T>(p_operand_, s_);
  }

  M& memory_;
  const BandBackward& g_;
  int own_;
  PipelineState<M::kStages> stage_;
  PipelineState<M::kKeyStages> key_;
  PipelineState<M::kBuffers> ds_at_;
  float dk_[32], dv_[32], s_[32], ds_[32];
  uint32_t p_operand_[4][4], ds_operand_[4][4];
};

// What accumulates dQ of a tile of queries over the key tiles of a pair, from dS of their owners.
// Where dQ waits until the next pair is up to the kernel.
template <class T, class M>
class PairDqAccumulator {
 protected:
  __device__ PairDqAccumulator(M& memory, const BandBackward& g)
      : memory_(memory),
        g_(g),
        thread_(threadIdx.x % kWarpgroup) {}

  __device__ __forceinline__ void add(float (&dq)[32], int owner, int key_stage, int add_to) const {
    memory_.ds_pipeline[owner].full[buffer(owner)].wait(counts_ >> (8 * owner + M::kBuffers - 1) &
                                                        1);
    const Descriptor ds =
                         descriptor(warp_uniform(shared_address(memory_.ds[owner][buffer(owner)]))),
                     k = descriptor(warp_uniform(shared_address(memory_.keys[key_stage].x)));
    wgmma_fence();
    mma_atb<T>(dq, ds, k, add_to);
    wgmma_commit_group();
  }

  __device__ __forceinline__ void release(int owner) {
    memory_.ds_pipeline[owner].release(buffer(owner));
    counts_ = (counts_ + (1u << 8 * owner)) & 0x0303;
  }

  M& memory_;
  const BandBackward& g_;
  unsigned thread_;  // of the warpgroup
  PipelineState<M::kKeyStages> key_;

 private:
  __device__ __forceinline__ int buffer(int owner) const {
    return M::kBuffers == 2 ? counts_ >> (8 * owner) & 1 : 0;
  }

  unsigned counts_ = 0;  // of each owner's steps, modulo 4, a byte each
};
}  // namespace weft::attention::hopper
