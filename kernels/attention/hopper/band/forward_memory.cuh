// SPDX-License-Identifier: MIT
// The forward sweeps over bands (forward.cuh, window_forward.cuh): shared
// memory of a block, and the threads that fill and empty it.
#pragma once

#include "kernels/attention/hopper/band/band.cuh"

namespace weft::attention::hopper {

// A slot has the queries of a tile, whose place y takes; kAccumulate: also the rows of y that earlier passes
// left, and y takes theirs. kStorer: store_band() sends y to global memory, else each warp its own rows.
template <int Dqk_, int Dv_, bool kAccumulate_>
struct BandForwardShape {
  static constexpr int Dqk = Dqk_, Dv = Dv_;
  static constexpr bool kAccumulate = kAccumulate_, kStorer = false;
  // As many as their registers allow.
  static constexpr bool kLarge = Dqk == 128 || (kAccumulate && Dv == 128);
  static constexpr int kConsumers = kLarge ? 2 : 3, kConsumerRegisters = kLarge ? 232 : 152,
                       kProducerRegisters = 40, kThreads = (1 + kConsumers) * kWarpgroup;
  // Slots for some tiles ahead, and stages in the rest of what shared memory there is. Small tiles would
  // leave room for many more: all of it is 4 % slower (kernels/README.md).
  static constexpr bool kFew = Dqk + Dv == 128 && !kAccumulate;
  static constexpr int kRings = 28 * kPanel, kQ = Dqk * 128, kY = Dv * 128, kStage = kQ + kY,
                       kSlot = kAccumulate ? kQ + kY
                               : kQ > kY   ? kQ
                                           : kY,
                       kAhead = kFew                       ? 2
                                : Dqk + Dv == 128          ? 4
                                : kAccumulate || Dqk == 64 ? 1
                                                           : 2,
                       kSlots = kConsumers + kAhead, kStages = kFew ? 6 : (kRings - kSlots * kSlot) / kStage;
  static constexpr int kQueries = kStages * kStage, kBarriers = kQueries + kSlots * kSlot,
                       kLastUsers = kBarriers + (kStages + 4 * kSlots) * 8, kEnd = kLastUsers + kStages * 4,
                       kBytes = kEnd + 1024;  // the first panel is moved up to a multiple of 1024
};

// What a launch copies, in tiles.
struct BandForwardMaps {
  CUtensorMap q, k, v, y, y_rows;  // y_rows: boxes of 16 rows
  BandTiles tiles;
  float scale;  // of scores, to powers of two

  // TensorMaps of `rows` rows.
  bool describe(CUtensorMap& map, const HeadsView& x, int rows) const {
    return hopper::describe(map, x, tiles, rows, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
  }
  static BandForwardMaps of(const AttentionForward& f, const AttentionPass& pass) {
    BandForwardMaps maps{.tiles = BandTiles::of(pass.band, f.q),
                         .scale = static_cast<float>(f.scale) * kLog2E};
    const bool described = maps.describe(maps.q, f.q, kTile) && maps.describe(maps.k, f.k, kTile) &&
                           maps.describe(maps.v, f.v, kTile) && maps.describe(maps.y, f.y, kTile) &&
                           maps.describe(maps.y_rows, f.y, 16);
    WEFT_CHECK(described || maps.tiles.units() == 0, kTmaRefuses);
    return maps;
  }
};

// Place `at` of a ring of kSize, in a round of that parity. Tiles are numbered on and on; number n lies in
// place n % kSize.
template <int kSize>
struct Place {
  int at, parity;
  __device__ __forceinline__ static Place of(int n) { return {n % kSize, n / kSize & 1}; }
  __device__ __forceinline__ Place back(int n) const {
    return at < n ? Place{at - n + kSize, parity ^ 1} : Place{at - n, parity};
  }
};

// Shared memory: a ring of stages with the keys and values of a tile, a ring of slots with its queries.
template <class Shape>
struct BandMemory {
  using Stage = Place<Shape::kStages>;
  using Slot = Place<Shape::kSlots>;
  static constexpr int kX = Shape::kQ, kStage = Shape::kStage;
  std::uint32_t base;

  __device__ static BandMemory of(const char* shared) { return {first_panel(shared)}; }
  __device__ std::uint32_t x(int stage) const { return base + stage * kStage; }
  __device__ std::uint32_t keys(Stage s) const { return x(s.at); }
  __device__ std::uint32_t values(Stage s) const { return keys(s) + Shape::kQ; }
  __device__ std::uint32_t queries(Slot s) const { return base + Shape::kQueries + s.at * Shape::kSlot; }
  __device__ std::uint32_t y(Slot s) const { return queries(s) + (Shape::kAccumulate ? Shape::kQ : 0); }
  // full: what was asked for is there. done: by query tile, its keys are not read any more. free: nor is its
  // slot. y_full: y has taken the place of the queries.
  __device__ std::uint32_t stage_full(Stage s) const { return base + Shape::kBarriers + s.at * 8; }
  __device__ std::uint32_t slot_full(Slot s) const {
    return base + Shape::kBarriers + (Shape::kStages + s.at) * 8;
  }
  __device__ std::uint32_t done(Slot s) const { return slot_full(s) + Shape::kSlots * 8; }
  __device__ std::uint32_t free(Slot s) const { return slot_full(s) + 2 * Shape::kSlots * 8; }
  __device__ std::uint32_t y_full(Slot s) const { return slot_full(s) + 3 * Shape::kSlots * 8; }

  // By all threads of the block, before anything else.
  __device__ void init() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < Shape::kStages; ++i) mbarrier_init(stage_full(Stage{i}), 1);
      for (int i = 0; i < Shape::kSlots; ++i) {
        mbarrier_init(slot_full(Slot{i}), 1);
        mbarrier_init(done(Slot{i}), kWarpgroup / 32);
        mbarrier_init(free(Slot{i}), Shape::kStorer ? 1 : kWarpgroup / 32);
        mbarrier_init(y_full(Slot{i}), kWarpgroup / 32);
      }
      fence_proxy_async();
    }
    __syncthreads();
  }
};

// One thread: its whole life.
template <class Shape>
__device__ __forceinline__ void produce_band(const BandMemory<Shape>& memory, const BandForwardMaps& maps,
                                             int* last_user) {
  using Memory = BandMemory<Shape>;
  const BandTiles& tiles = maps.tiles;
  const int back = tiles.tiles_back();
  int stage = 0, slot = 0, done = 0;  // numbers of the next ones; how many query tiles are done
  for (int unit = blockIdx.x; unit < tiles.units(); unit += gridDim.x) {
    const BandRun run = tiles.unit(unit);
    const int first_slot = slot;
    for (int tile = max(run.first - back, 0); tile < run.end; ++tile, ++stage) {
      const auto in = Memory::Stage::of(stage);
      int& user = last_user[in.at];
      // Those of a slot are followed before it is used again: parities tell one round from the next only.
      const int needed = max(stage < Shape::kStages ? 0 : user + 1, slot + 1 - Shape::kSlots);
      for (; done < needed; ++done) {
        const auto used = Memory::Slot::of(done);
        mbarrier_wait(memory.done(used), used.parity);
      }
      user = first_slot + min(tile + back, run.end - 1) - run.first;
      if (tile >= run.first) {
        const auto own = Memory::Slot::of(slot++);
        mbarrier_wait(memory.free(own), own.parity ^ 1);
        mbarrier_arrive_expect_tx(memory.slot_full(own), Shape::kQ + (Shape::kAccumulate ? Shape::kY : 0));
        copy_tile<Shape::Dqk>(memory.queries(own), maps.q, tiles, run, tile, memory.slot_full(own));
        if constexpr (Shape::kAccumulate)
          copy_tile<Shape::Dv>(memory.y(own), maps.y, tiles, run, tile, memory.slot_full(own));
      }
      mbarrier_arrive_expect_tx(memory.stage_full(in), Shape::kStage);
      copy_tile<Shape::Dqk>(memory.keys(in), maps.k, tiles, run, tile, memory.stage_full(in));
      copy_tile<Shape::Dv>(memory.values(in), maps.v, tiles, run, tile, memory.stage_full(in));
    }
  }
}

// A consumer warpgroup, by all its threads, `thread` their number in the block (threadIdx.x, or this_thread()
// where registers are scarce): calls attend(run, tile, slot, stage) for every kConsumers-th query tile, with
// the slot of its queries and the stage of its own keys.
template <class Shape>
__device__ __forceinline__ void take_query_tiles(const BandTiles& tiles, auto thread, const auto& attend) {
  using Memory = BandMemory<Shape>;
  const int back = tiles.tiles_back();
  int mine = warp_uniform(thread / kWarpgroup - 1);  // number of the next query tile of this warpgroup
  int stage = 0, slot = 0;                           // of the first tiles of the run
  for (int unit = blockIdx.x; unit < tiles.units(); unit += gridDim.x) {
    const BandRun run = tiles.unit(unit);
    const int before = min(run.first, back), count = run.end - run.first;
    for (; mine < slot + count; mine += Shape::kConsumers)
      attend(run, run.first + mine - slot, Memory::Slot::of(mine),
             Memory::Stage::of(stage + before + mine - slot));
    stage += before + count;
    slot += count;
  }
}

// A thread of each other warp of the producer: sends every third tile of y to global memory, so that no
// consumer waits for that.
template <class Shape>
__device__ __forceinline__ void store_band(const BandMemory<Shape>& memory, const BandForwardMaps& maps) {
  constexpr int kThreads = kWarpgroup / 32 - 1;
  const BandTiles& tiles = maps.tiles;
  int turn = static_cast<int>(threadIdx.x / 32) - 1;  // tiles until the next one of this thread
  int slot = 0;                                       // number of the next one
  for (int unit = blockIdx.x; unit < tiles.units(); unit += gridDim.x) {
    const BandRun run = tiles.unit(unit);
    for (int tile = run.first; tile < run.end; ++tile, ++slot) {
      if (turn-- > 0) continue;
      turn = kThreads - 1;
      const auto at = BandMemory<Shape>::Slot::of(slot);
      mbarrier_wait(memory.y_full(at), at.parity);
      store_tile_rows<Shape::Dv>(maps.y, memory.y(at), tiles, run, tile, 0);
      tma_store_wait_group_read<0>();
      mbarrier_arrive(memory.free(at));
    }
  }
}

}  // namespace weft::attention::hopper
