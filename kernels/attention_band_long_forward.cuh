// SPDX-License-Identifier: MIT
// Forward attention over a Band whose columns are longer than the sweep takes (attention_band_forward.cuh).
// A unit is a few query tiles of a column that follow each other, one for each consumer warpgroup; the key
// tiles that they see come once for all of them, from the first one on, and meet an online softmax.
#pragma once

#include "kernels/attention_band_forward.cuh"
#include "kernels/attention_hopper_forward_walk.cuh"

namespace weft::attention::hopper {

// A stage has the keys and values of a tile, a slot the queries of one, whose place y takes.
template <int Dqk_, int Dv_>
struct LongForwardShape {
  static constexpr int Dqk = Dqk_, Dv = Dv_;
  static constexpr bool kSmall = Dqk + Dv == 128;
  static constexpr int kOwners = kSmall ? 4 : 3, kConsumerRegisters = kSmall ? 112 : 160,
                       kProducerRegisters = 32, kThreads = (1 + kOwners) * kWarpgroup;
  static constexpr int kX = Dqk * 128, kY = Dv * 128, kStage = kX + kY, kSlot = kX > kY ? kX : kY,
                       kSlots = 2 * kOwners,
                       kStages = kSmall      ? 8
                                 : Dqk == 64 ? 4
                                             : 3;
  static constexpr int kQueries = kStages * kStage, kBarriers = kQueries + kSlots * kSlot,
                       kEnd = kBarriers + 2 * (kStages + kSlots) * 8,
                       kBytes = kEnd + 1024;  // the first panel is moved up to a multiple of 1024
  static_assert(kBytes <= 227 * 1024);
};

template <class Shape>
struct LongForwardMemory {
  static constexpr int kX = Shape::kX, kStage = Shape::kStage, kWarps = kWarpgroup / 32;
  std::uint32_t base;

  __device__ static LongForwardMemory of(const char* shared) {
    return {(shared_address(shared) + 1023) & ~1023u};
  }
  __device__ std::uint32_t x(int stage) const { return base + stage * kStage; }
  __device__ std::uint32_t y(int stage) const { return x(stage) + kX; }
  __device__ std::uint32_t queries(int slot) const { return base + Shape::kQueries + slot * Shape::kSlot; }
  __device__ std::uint32_t full(int stage) const { return base + Shape::kBarriers + stage * 8; }
  __device__ std::uint32_t free(int stage) const { return full(Shape::kStages + stage); }
  __device__ std::uint32_t slot_full(int slot) const { return full(2 * Shape::kStages + slot); }
  __device__ std::uint32_t slot_free(int slot) const { return slot_full(Shape::kSlots + slot); }

  // By all threads of the block, before anything else.
  __device__ void init() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < Shape::kStages; ++i)
        init_barrier(full(i), 1), init_barrier(free(i), Shape::kOwners * kWarps);
      for (int i = 0; i < Shape::kSlots; ++i)
        init_barrier(slot_full(i), 1), init_barrier(slot_free(i), kWarps);
      show_to_products();  // and to the copy engine
    }
    __syncthreads();
  }
};

// Key tiles that queries of a unit see.
struct KeyTiles {
  int first, end;
  __device__ __forceinline__ static KeyTiles of(const BandTiles& tiles, const BandRun& run) {
    return {max(run.first - tiles.tiles_back(), 0), run.end};
  }
};

// One thread: its whole life.
template <class Shape>
__device__ __forceinline__ void produce_long_band(const LongForwardMemory<Shape>& memory,
                                                  const BandForwardMaps& maps) {
  const BandTiles& tiles = maps.tiles;
  Ring<Shape::kStages> stage;
  Ring<Shape::kSlots> slot;
  for (int unit = blockIdx.x; unit < tiles.units(); unit += gridDim.x) {
    const BandRun run = tiles.unit(unit);
    for (int tile = run.first; tile < run.end; ++tile, slot.advance()) {
      const std::uint32_t full = memory.slot_full(slot.at);
      wait_for_phase(memory.slot_free(slot.at), slot.parity ^ 1);
      arrive_and_expect(full, Shape::kX);
      copy_tile<Shape::Dqk>(memory.queries(slot.at), maps.q, tiles, run, tile, full);
    }
    const KeyTiles keys = KeyTiles::of(tiles, run);
    for (int tile = keys.first; tile < keys.end; ++tile, stage.advance()) {
      const std::uint32_t full = memory.full(stage.at);
      wait_for_phase(memory.free(stage.at), stage.parity ^ 1);
      arrive_and_expect(full, Shape::kStage);
      copy_tile<Shape::Dqk>(memory.x(stage.at), maps.k, tiles, run, tile, full);
      copy_tile<Shape::Dv>(memory.y(stage.at), maps.v, tiles, run, tile, full);
    }
  }
}

// The key tiles of a unit as one of its query tiles meets them: what walk_forward() asks of a Consumer. A
// mask is the distance of a key tile that hides something, or -1.
template <class Shape>
class KeyStream {
 public:
  __device__ KeyStream(const LongForwardMemory<Shape>& memory, const BandTiles& tiles)
      : memory_(memory), tiles_(tiles) {}
  // query: past the end of the unit where this warpgroup has none.
  __device__ __forceinline__ void open(KeyTiles keys, int query) { keys_ = keys, query_ = query; }

  __device__ __forceinline__ int step() {
    if (keys_.first == keys_.end) return kEnd;
    wait_for_phase(memory_.full(stage_.at), stage_.parity);
    const int back = query_ - keys_.first++;
    stage_.advance();
    if (query_ < keys_.end && 0 <= back && back <= tiles_.tiles_back()) return tiles_.hides(back) ? back : -1;
    release(stage());
    return kSkip;
  }
  __device__ __forceinline__ int next() {
    int mask = kSkip;
    while (mask == kSkip) mask = step();
    return mask;
  }
  __device__ __forceinline__ int stage() const { return stage_.back(1); }
  __device__ __forceinline__ int stage_before() const { return stage_.back(2); }
  __device__ __forceinline__ int last_tile(int mask) const { return stage_.back(mask == kSkip ? 2 : 1); }
  __device__ __forceinline__ void release(int stage) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(memory_.free(stage));
  }

 private:
  const LongForwardMemory<Shape>& memory_;
  const BandTiles& tiles_;
  Ring<Shape::kStages> stage_;
  KeyTiles keys_{};
  int query_ = 0;
};

// A consumer warpgroup.
template <class T, class Shape>
class LongForwardConsumer {
 public:
  using Memory = LongForwardMemory<Shape>;
  __device__ LongForwardConsumer(const Memory& memory, const AttentionForward& f, const BandForwardMaps& maps,
                                 bool accumulate)
      : memory_(memory), f_(f), maps_(maps), stream_(memory, maps.tiles), accumulate_(accumulate) {}

  // Its whole life. Query tiles of a unit see different numbers of keys: warpgroups take them in turn.
  __device__ __forceinline__ void run() {
    const BandTiles& tiles = maps_.tiles;
    int turn = same_in_warp(threadIdx.x / kWarpgroup - 1), slot = 0;
    for (int unit = blockIdx.x; unit < tiles.units(); unit += gridDim.x) {
      const BandRun run = tiles.unit(unit);
      stream_.open(KeyTiles::of(tiles, run), run.first + turn);
      if (run.first + turn < run.end)
        attend(run, run.first + turn, Place<Shape::kSlots>::of(slot + turn));
      else
        stream_.next();
      slot += run.end - run.first;
      turn = turn + 1 == Shape::kOwners ? 0 : turn + 1;
    }
    wait_until_stored();
  }

 private:
  __device__ __forceinline__ void attend(const BandRun& run, int tile, Place<Shape::kSlots> slot) {
    Owned<Shape::Dqk, false> q;
    q.load(same_in_warp(static_cast<int>(memory_.queries(slot.at))));
    ForwardSums<T, Shape::Dv> sums(static_cast<float>(f_.scale) * kLog2E);
    wait_for_phase(memory_.slot_full(slot.at), slot.parity);
    walk_forward(sums, stream_, memory_, maps_.tiles, q);
    Softmax::Row row[2];
    int position[2];
    float* const lse = static_cast<float*>(f_.lse.data) + (run.b * f_.q.heads + run.h) * f_.q.time;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      position[half] = maps_.tiles.position(run.group, tile, row_of(half));
      row[half] =
          sums.softmax.finish(half, accumulate_ && position[half] >= 0 ? lse[position[half]] : -INFINITY);
    }
    __syncwarp();  // every lane of a quad has read lse
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (threadIdx.x % 4 == 0 && position[half] >= 0) lse[position[half]] = row[half].lse;
    if (accumulate_)
      add(sums.y, row, position, run, slot.at);
    else
      put(sums.y, row, run, tile, slot.at);
  }
  // Through shared memory, where y takes the place of the queries.
  __device__ __forceinline__ void put(const float (&y)[Shape::Dv / 2], const Softmax::Row (&row)[2],
                                      const BandRun& run, int tile, int slot) const {
    asm volatile("bar.sync %0, 128;" ::"r"(threadIdx.x / kWarpgroup) : "memory");
    put_rows<T, false>(y, row, memory_.queries(slot));
    show_to_products();  // and to the copy engine
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      store_16_rows<Shape::Dv>(maps_.y_rows, memory_.queries(slot), maps_.tiles, run, tile,
                               static_cast<int>(threadIdx.x) % kWarpgroup / 32 * 16);
      wait_until_stored();
      arrive(memory_.slot_free(slot));
    }
    __syncwarp();
  }
  // To what earlier passes left.
  __device__ __forceinline__ void add(const float (&y)[Shape::Dv / 2], const Softmax::Row (&row)[2],
                                      const int (&position)[2], const BandRun& run, int slot) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(memory_.slot_free(slot));
    const Rows rows = Rows::of(f_.y, run.b, run.h);
    store_row<T, 0>(y, row[0].now, true, row[0].kept, position[0], rows);
    store_row<T, 1>(y, row[1].now, true, row[1].kept, position[1], rows);
  }

  const Memory& memory_;
  const AttentionForward& f_;
  const BandForwardMaps& maps_;
  KeyStream<Shape> stream_;
  bool accumulate_;
};

template <class T, int Dqk, int Dv>
__global__ void __launch_bounds__(LongForwardShape<Dqk, Dv>::kThreads, 1)
    long_band_forward_kernel(const __grid_constant__ AttentionForward f,
                             const __grid_constant__ BandForwardMaps maps, bool accumulate) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Shape = LongForwardShape<Dqk, Dv>;
  extern __shared__ __align__(128) char shared[];
  const auto memory = LongForwardMemory<Shape>::of(shared);
  if (threadIdx.x == 0) prefetch(maps.q), prefetch(maps.k), prefetch(maps.v), prefetch(maps.y_rows);
  memory.init();
  if (threadIdx.x < kWarpgroup) {
    give_registers<Shape::kProducerRegisters>();
    if (threadIdx.x == 0) produce_long_band(memory, maps);
  } else {
    take_registers<Shape::kConsumerRegisters>();
    LongForwardConsumer<T, Shape>(memory, f, maps, accumulate).run();
  }
#endif
}

template <class T>
void launch_long_band_forward(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  BandForwardMaps maps{.tiles = BandTiles::of(pass.band, f.q)};
  const auto described = [&](CUtensorMap& map, const HeadsView& x, int box_rows) {
    return describe(map, x, maps.tiles, box_rows, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
  };
  const bool all = described(maps.q, f.q, kTile) && described(maps.k, f.k, kTile) &&
                   described(maps.v, f.v, kTile) && described(maps.y_rows, f.y, 16);
  WEFT_CHECK(all, "attention: the copy engine does not take a band of stride ", pass.band.stride,
             " over these views");
  with_head_sizes(f.q.size, f.v.size, [&]<int Dqk, int Dv>() {
    using Shape = LongForwardShape<Dqk, Dv>;
    maps.tiles.cut_to(Shape::kOwners);
    start(queue, long_band_forward_kernel<T, Dqk, Dv>, maps.tiles.units(), Shape::kThreads, Shape::kBytes, f,
          maps, pass.accumulate);
  });
}

}  // namespace weft::attention::hopper
