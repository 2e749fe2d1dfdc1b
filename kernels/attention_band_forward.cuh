// SPDX-License-Identifier: MIT
// Forward attention over a Band: a sweep that fetches every tile of q, k and v once (and some again where a
// run begins). One thread asks the copy engine for tiles, as far ahead as shared memory reaches; consumer
// warpgroups take query tiles in turn. All keys of a query tile meet it in one product before one softmax.
#pragma once

#include "kernels/attention_band.cuh"
#include "kernels/attention_hopper_launch.cuh"
#include "kernels/attention_hopper_softmax.cuh"

namespace weft::attention::hopper {

// kAccumulate: a slot has the rows of y, too, that earlier passes left.
template <int Dqk_, int Dv_, bool kAccumulate_>
struct BandForwardShape {
  static constexpr int Dqk = Dqk_, Dv = Dv_;
  static constexpr bool kAccumulate = kAccumulate_;
  // As many as their registers allow.
  static constexpr bool kLarge = Dqk == 128 || (kAccumulate && Dv == 128);
  static constexpr int kConsumers = kLarge ? 2 : 3, kConsumerRegisters = kLarge ? 232 : 152,
                       kProducerRegisters = 40, kThreads = (1 + kConsumers) * kWarpgroup;
  // Slots for some tiles ahead, and stages in the rest of what shared memory there is.
  static constexpr int kRings = 28 * kPanel, kQ = Dqk * 128, kY = Dv * 128, kStage = kQ + kY,
                       kSlot = kQ + (kAccumulate ? kY : 0),
                       kAhead = kSlot > 2 * kPanel    ? 1
                                : kStage > 2 * kPanel ? 2
                                                      : 4,
                       kSlots = kConsumers + kAhead, kStages = (kRings - kSlots * kSlot) / kStage;
  static constexpr int kQueries = kStages * kStage, kBarriers = kQueries + kSlots * kSlot,
                       kLastUsers = kBarriers + (kStages + 2 * kSlots) * 8, kEnd = kLastUsers + kStages * 4,
                       kBytes = kEnd + 1024;  // the first panel is moved up to a multiple of 1024
};

// What a launch copies, in tiles.
struct BandForwardMaps {
  CUtensorMap q, k, v, y;
  BandTiles tiles;
};

// Shared memory: a ring of stages with the keys and values of a tile, a ring of slots with its queries.
// Places are numbered on and on; number n lies in place n % size.
template <class Shape>
struct BandMemory {
  std::uint32_t base;

  __device__ static BandMemory of(const char* shared) { return {(shared_address(shared) + 1023) & ~1023u}; }
  __device__ std::uint32_t keys(int n) const { return base + n % Shape::kStages * Shape::kStage; }
  __device__ std::uint32_t values(int n) const { return keys(n) + Shape::kQ; }
  __device__ std::uint32_t queries(int n) const {
    return base + Shape::kQueries + n % Shape::kSlots * Shape::kSlot;
  }
  __device__ std::uint32_t earlier_y(int n) const { return queries(n) + Shape::kQ; }
  __device__ std::uint32_t stage_full(int n) const {
    return base + Shape::kBarriers + n % Shape::kStages * 8;
  }
  __device__ std::uint32_t slot_full(int n) const {
    return base + Shape::kBarriers + (Shape::kStages + n % Shape::kSlots) * 8;
  }
  __device__ std::uint32_t done(int n) const { return slot_full(n) + Shape::kSlots * 8; }
  __device__ void wait_for_stage(int n) const { wait_for_phase(stage_full(n), n / Shape::kStages & 1); }
  __device__ void wait_for_slot(int n) const { wait_for_phase(slot_full(n), n / Shape::kSlots & 1); }
  __device__ void wait_until_done(int n) const { wait_for_phase(done(n), n / Shape::kSlots & 1); }

  // By all threads of the block, before anything else.
  __device__ void init() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < Shape::kStages; ++i) init_barrier(stage_full(i), 1);
      for (int i = 0; i < Shape::kSlots; ++i)
        init_barrier(slot_full(i), 1), init_barrier(done(i), kWarpgroup / 32);
      show_to_products();  // and to the copy engine
    }
    __syncthreads();
  }
};

// One thread: its whole life.
template <class Shape>
__device__ __forceinline__ void produce_band(const BandMemory<Shape>& memory, const BandForwardMaps& maps,
                                             int* last_user) {
  const BandTiles& tiles = maps.tiles;
  const int back = tiles.tiles_back();
  int stage = 0, slot = 0, done = 0;  // numbers of the next ones, and how many query tiles have been used
  const auto wait_until_done = [&](int count) {
    for (; done < count; ++done) memory.wait_until_done(done);
  };
  for (int unit = blockIdx.x; unit < tiles.units(); unit += gridDim.x) {
    const BandRun run = tiles.unit(unit);
    const int first_slot = slot;
    for (int tile = max(run.first - back, 0); tile < run.end; ++tile, ++stage) {
      int& user = last_user[stage % Shape::kStages];
      if (stage >= Shape::kStages) wait_until_done(user + 1);
      user = first_slot + min(tile + back, run.end - 1) - run.first;
      if (tile >= run.first) {
        wait_until_done(slot + 1 - Shape::kSlots);
        arrive_and_expect(memory.slot_full(slot), Shape::kSlot);
        copy_tile<Shape::Dqk>(memory.queries(slot), maps.q, tiles, run, tile, memory.slot_full(slot));
        if constexpr (Shape::kAccumulate)
          copy_tile<Shape::Dv>(memory.earlier_y(slot), maps.y, tiles, run, tile, memory.slot_full(slot));
        ++slot;
      }
      arrive_and_expect(memory.stage_full(stage), Shape::kStage);
      copy_tile<Shape::Dqk>(memory.keys(stage), maps.k, tiles, run, tile, memory.stage_full(stage));
      copy_tile<Shape::Dv>(memory.values(stage), maps.v, tiles, run, tile, memory.stage_full(stage));
    }
  }
}

// Of this thread's two rows: the keys of a tile that they see, counted from its own first column.
struct SeenKeys {
  int first[2], count[2];
  __device__ __forceinline__ static SeenKeys of(const BandTiles& tiles, int back) {
    SeenKeys seen;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const TileRows keys = tiles.keys_of(row_of(half), back);
      seen.first[half] = keys.first - static_cast<int>(threadIdx.x % 4) * 2;
      seen.count[half] = max(keys.last - keys.first + 1, 0);
    }
    return seen;
  }
  __device__ __forceinline__ bool has(int i) const {  // sum i of a fragment
    const int column = i / 4 * 8 + i % 2, half = i / 2 % 2;
    return static_cast<unsigned>(column - first[half]) < static_cast<unsigned>(count[half]);
  }
  __device__ __forceinline__ void hide_others(float (&s)[32]) const {
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (!has(i)) s[i] = -INFINITY;
  }
};

// Probabilities of up to three key tiles, as operands: its own, the one before, the one before that.
struct BandProbabilities {
  std::uint32_t own[4][4], near[4][4], far[4][4];
};

// The scores of 64 queries and their keys in kBack + 1 tiles into probabilities; softmax takes the references
// and sums. A query that sees key c of the farthest of three tiles does not see key c of its own, as no reach
// is larger than 128: the two tiles of scores become one.
template <class T, int kBack>
__device__ __forceinline__ void band_probabilities(BandProbabilities& p, Softmax& softmax, float (&own)[32],
                                                   float (&near)[32], const BandTiles& tiles) {
  float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    top[i / 2 % 2] = fmaxf(top[i / 2 % 2], own[i]);
    if constexpr (kBack > 0) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], near[i]);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    top[half] = fmaxf(top[half], __shfl_xor_sync(0xffffffffu, top[half], 1));
    softmax.top[half] = fmaxf(top[half], __shfl_xor_sync(0xffffffffu, top[half], 2));
  }
  softmax.apply(own);
  if constexpr (kBack > 0) softmax.apply(near);
  softmax.add();
  if constexpr (kBack > 0) round_to_operand<T>(p.near, near);
  if constexpr (kBack == 2) {
    const SeenKeys seen = SeenKeys::of(tiles, 0);
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      const bool low = seen.has(i), high = seen.has(i + 1);
      p.own[i / 8][i % 8 / 2] = pack<T>(low ? own[i] : 0, high ? own[i + 1] : 0);
      p.far[i / 8][i % 8 / 2] = pack<T>(low ? 0 : own[i], high ? 0 : own[i + 1]);
    }
  } else {
    round_to_operand<T>(p.own, own);
  }
}

// One query tile against the keys of its own stage and the kBack stages before it.
template <class T, int kBack, class Shape>
__device__ __forceinline__ void attend_band(float (&y)[Shape::Dv / 2], Softmax& softmax,
                                            const BandMemory<Shape>& memory, const BandTiles& tiles, int slot,
                                            int stage) {
  float own[32], near[32], far[32];
  Owned<Shape::Dqk, false> q;
  q.load(memory.queries(slot));
  memory.wait_for_slot(slot);
#pragma unroll
  for (int i = 0; i <= kBack; ++i) memory.wait_for_stage(stage - i);
  pin(own);
  begin_products();
  q.template start_product<T>(own, memory.keys(stage));
  if constexpr (kBack == 2) q.template start_product<T>(far, memory.keys(stage - 2));
  commit_products();
  if constexpr (kBack > 0) {
    q.template start_product<T>(near, memory.keys(stage - 1));
    commit_products();
    wait_for_products<1>();
  } else {
    wait_for_products<0>();
  }
  pin(own);
  const SeenKeys seen = SeenKeys::of(tiles, 0);
  if constexpr (kBack == 2) {
    pin(far);
    SeenKeys::of(tiles, 2).hide_others(far);
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (!seen.has(i)) own[i] = far[i];
  } else {
    seen.hide_others(own);
  }
  if constexpr (kBack > 0) {
    wait_for_products<0>();
    pin(near);
    SeenKeys::of(tiles, 1).hide_others(near);
  }
  BandProbabilities p;
  band_probabilities<T, kBack>(p, softmax, own, near, tiles);
#pragma unroll
  for (int i = 0; i < Shape::Dv / 2; ++i) y[i] = 0;
  pin(y);
  begin_products();
  if constexpr (kBack > 0) start_sums<T>(y, p.near, descriptor(memory.values(stage - 1)));
  start_sums<T>(y, p.own, descriptor(memory.values(stage)));
  if constexpr (kBack == 2) start_sums<T>(y, p.far, descriptor(memory.values(stage - 2)));
  commit_products();
  wait_for_products<0>();
  pin(y);
}

// One of this thread's rows of y, where `tile` in shared memory has what earlier passes left.
template <class T, int kHalf, int N>
__device__ __forceinline__ void add_earlier(float (&y)[N], const Softmax::Row& row, std::uint32_t tile) {
  const int r = row_of(kHalf);
#pragma unroll
  for (int j = 0; j < N / 4; ++j) {
    std::uint32_t earlier;
    asm volatile("ld.shared.u32 %0, [%1];"
                 : "=r"(earlier)
                 : "r"(tile + j / 8 * kPanel + r * 128 + ((j % 8 ^ (r & 7)) << 4) + threadIdx.x % 4 * 4));
    float &low = y[4 * j + 2 * kHalf], &high = y[4 * j + 2 * kHalf + 1];
    low = fmaf(low_half<T>(earlier), row.kept, low * row.now);
    high = fmaf(high_half<T>(earlier), row.kept, high * row.now);
  }
}

// A query tile's part of the results.
template <class T, class Shape>
__device__ __forceinline__ void attend_tile(const BandMemory<Shape>& memory, const AttentionForward& f,
                                            const BandTiles& tiles, const BandRun& run, int tile, int slot,
                                            int stage) {
  float* const lse = static_cast<float*>(f.lse.data) + (run.b * f.q.heads + run.h) * f.q.time;
  int position[2];
  float earlier[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    position[half] = tiles.position(run.group, tile, row_of(half));
    if (Shape::kAccumulate && position[half] >= 0) earlier[half] = lse[position[half]];
  }
  float y[Shape::Dv / 2];
  Softmax softmax{static_cast<float>(f.scale) * kLog2E};
  const int back = min(tile, tiles.tiles_back());
  if (back == 2)
    attend_band<T, 2>(y, softmax, memory, tiles, slot, stage);
  else if (back == 1)
    attend_band<T, 1>(y, softmax, memory, tiles, slot, stage);
  else
    attend_band<T, 0>(y, softmax, memory, tiles, slot, stage);
  Softmax::Row row[2] = {softmax.finish(0, earlier[0]), softmax.finish(1, earlier[1])};
  if constexpr (Shape::kAccumulate) {
    add_earlier<T, 0>(y, row[0], memory.earlier_y(slot));
    pin(y);  // else all of it is loaded first, and there are no registers for that
    add_earlier<T, 1>(y, row[1], memory.earlier_y(slot));
    row[0].now = row[1].now = 1;
  }
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(memory.done(slot));
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (threadIdx.x % 4 == 0 && position[half] >= 0) lse[position[half]] = row[half].lse;
  const Rows out = Rows::of(f.y, run.b, run.h);
  store_row<T, 0>(y, row[0].now, false, 0, position[0], out);
  store_row<T, 1>(y, row[1].now, false, 0, position[1], out);
}

// A consumer warpgroup: every kConsumers-th query tile of the block.
template <class T, class Shape>
__device__ __forceinline__ void consume_band(const BandMemory<Shape>& memory, const AttentionForward& f,
                                             const BandTiles& tiles) {
  const int back = tiles.tiles_back();
  int mine = same_in_warp(threadIdx.x / kWarpgroup - 1);  // number of the next query tile of this warpgroup
  int stage = 0, slot = 0;                                // of the first tiles of the run
  for (int unit = blockIdx.x; unit < tiles.units(); unit += gridDim.x) {
    const BandRun run = tiles.unit(unit);
    const int before = min(run.first, back), count = run.end - run.first;
    for (; mine < slot + count; mine += Shape::kConsumers)
      attend_tile<T>(memory, f, tiles, run, run.first + mine - slot, mine, stage + before + mine - slot);
    stage += before + count;
    slot += count;
  }
}

template <class T, int Dqk, int Dv, bool kAccumulate>
__global__ void __launch_bounds__(BandForwardShape<Dqk, Dv, kAccumulate>::kThreads, 1)
    band_forward_kernel(const __grid_constant__ AttentionForward f,
                        const __grid_constant__ BandForwardMaps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Shape = BandForwardShape<Dqk, Dv, kAccumulate>;
  extern __shared__ __align__(128) char shared[];
  const auto memory = BandMemory<Shape>::of(shared);
  memory.init();
  if (threadIdx.x < kWarpgroup) {
    give_registers<Shape::kProducerRegisters>();
    char* const last_users = shared + (memory.base - shared_address(shared)) + Shape::kLastUsers;
    if (threadIdx.x == 0) produce_band(memory, maps, reinterpret_cast<int*>(last_users));
  } else {
    take_registers<Shape::kConsumerRegisters>();
    consume_band<T>(memory, f, maps.tiles);
  }
#endif
}

template <class T>
bool launch_band_forward(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  BandForwardMaps maps{.tiles = BandTiles::of(pass.band, f.q)};
  if (!describe(maps.q, f.q, maps.tiles) || !describe(maps.k, f.k, maps.tiles) ||
      !describe(maps.v, f.v, maps.tiles) || !describe(maps.y, f.y, maps.tiles))
    return false;
  // A tile that is fetched again but not written costs about half as much as others.
  maps.tiles.cut(processors(), 0.5 * maps.tiles.tiles_back());
  with_head_sizes(f.q.size, f.v.size, [&]<int Dqk, int Dv>() {
    const auto launch = [&]<bool kAccumulate>() {
      using Shape = BandForwardShape<Dqk, Dv, kAccumulate>;
      start(queue, band_forward_kernel<T, Dqk, Dv, kAccumulate>, maps.tiles.units(), Shape::kThreads,
            Shape::kBytes, f, maps);
    };
    pass.accumulate ? launch.template operator()<true>() : launch.template operator()<false>();
  });
  return true;
}

}  // namespace weft::attention::hopper
