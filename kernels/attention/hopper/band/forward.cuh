// SPDX-License-Identifier: MIT
// Forward attention on Hopper over a Band that reaches at most 128 rows: FlashAttention without its
// loop. A query tile sees at most three key tiles, its own and the two before. All its scores fit
// the registers, so that one plain softmax replaces the online one.
// The kernel is persistent: a thread block takes spans of neighbouring tiles (band.cuh), and loads
// each key tile once per span. One thread, the producer, loads tiles by TMA as far ahead as shared
// memory reaches. The other warpgroups are consumers, and take query tiles in turn. Two rings
// connect them; forward_stream.cuh has the rings and the producer:
//   stages         keys and values of a tile; free when the last query tile that sees them is done
//   query stages   queries of a tile; y takes their place, and leaves from there by TMA
#pragma once

#include "kernels/attention/hopper/band/forward_stream.cuh"
#include "kernels/attention/hopper/masks.cuh"
#include "kernels/attention/hopper/softmax.cuh"

#include <algorithm>
#include <cmath>

namespace weft::attention::hopper {
// What fits a multiprocessor. kAccumulate: y and lse go on from what an earlier pass left.
template <int Dqk_, int Dv_, bool kAccumulate_, bool kDocuments_>
struct BandForwardShape {
  static constexpr int Dqk = Dqk_, Dv = Dv_;
  static constexpr bool kAccumulate = kAccumulate_, kDocuments = kDocuments_;
  static constexpr bool kStorer = false, kInOrder = true;
  // As many consumers as their registers allow.
  static constexpr bool kLarge = Dqk == 128 || (kAccumulate && Dv == 128);
  static constexpr int kConsumers = kLarge ? 2 : 3, kThreads = (1 + kConsumers) * kWarpgroup;
  static constexpr RegisterSplit kRegisters = {.producer = 40, .consumer = kLarge ? 232 : 152};
  // Queries of some tiles ahead, keys in the rest. Heads of 64 leave room for more: 4 % slower.
  static constexpr bool kFew = Dqk + Dv == 128 && !kAccumulate;
  static constexpr int kRings = 28 * kPanel, kQ = Dqk * 128, kY = Dv * 128,  // bytes
      kQueryBytes = kAccumulate ? kQ + kY : std::max(kQ, kY),
                       kAhead = kFew                       ? 2
                                : Dqk + Dv == 128          ? 4
                                : kAccumulate || Dqk == 64 ? 1
                                                           : 2,
                       kQueryStages = kConsumers + kAhead,
                       kStages = kFew ? 6 : (kRings - kQueryStages * kQueryBytes) / (kQ + kY);
};

// The largest score of each row, over all its key tiles.
template <int kTiles>
__device__ __forceinline__ void find_top(Softmax& softmax, const float (&s)[kTiles][32]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float tops[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};  // none waits for the one before
#pragma unroll
    for (int i = 0; i < kTiles * 16; ++i)
      tops[i % 4] = fmaxf(tops[i % 4], s[i / 16][i % 16 / 2 * 4 + 2 * half + i % 2]);
    float top = fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3]));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    softmax.top[half] = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
  }
}

// y = softmax(Q K^T) V of a query tile and kBack + 1 key tiles.
// With kBack 2, the scores of the own tile and of the farthest one share registers. That is
// possible as no reach exceeds 128: of columns c of both tiles, a query sees at most one.
template <class T, int kBack, class Shape>
__device__ __forceinline__ void attend_band(float (&y)[Shape::Dv / 2], Softmax& softmax,
                                            BandMemory<Shape>& memory, const BandTiles& tiles,
                                            PipelineState<Shape::kQueryStages> query,
                                            PipelineState<Shape::kStages> own, Reach reach) {
  constexpr int kKept = kBack > 0 ? 2 : 1;  // tiles of scores in registers: own with far, near
  const auto near = own.back(1), far = own.back(2);
  float s[kKept][32], distant[32];
  Owned<Shape::Dqk, false> q;
  q.load(memory.queries[query.stage]);  // makes a descriptor, and reads nothing yet
  memory.queries_full[query.stage].wait(query.parity);
  if constexpr (kBack == 2) memory.keys_full[far.stage].wait(far.parity);
  if constexpr (kBack > 0) memory.keys_full[near.stage].wait(near.parity);
  memory.keys_full[own.stage].wait(own.parity);
  pin(s[0]);
  wgmma_fence();
  q.template mma_abt<T>(s[0], descriptor(memory.stages[own.stage].x));
  if constexpr (kBack == 2) q.template mma_abt<T>(distant, descriptor(memory.stages[far.stage].x));
  wgmma_commit_group();
  if constexpr (kBack > 0) {
    q.template mma_abt<T>(s[1], descriptor(memory.stages[near.stage].x));
    wgmma_commit_group();
  }
  if constexpr (Shape::kDocuments) reach.compare(tiles);
  wgmma_wait_group<(kBack > 0)>();  // the near scores overlap what follows
  pin(s[0]);
  SeenKeys seen;
  if constexpr (kBack == 2) {
    pin(distant);
    // with a reach of 128 and no skip, what own hides is what far shows
    if (tiles.reach != 2 * kTile || tiles.skip != 0 || reach.cut) hide(distant, tiles, 2, reach);
    seen = SeenKeys::of(tiles, 0, reach);
    if (reach.cut) hide_begin(s[0], seen);
#pragma unroll
    for (int i = 0; i < 32; ++i) s[0][i] = seen.before_end(i) ? s[0][i] : distant[i];
  } else {
    hide(s[0], tiles, 0, reach);
  }
  wgmma_wait_group<0>();
  if constexpr (kBack > 0) {
    pin(s[1]);
    if (tiles.hides(1) || reach.cut) hide(s[1], tiles, 1, reach);
  }
  find_top(softmax, s);
#pragma unroll
  for (int i = kKept - 1; i >= 0; --i) softmax.apply(s[i]);
  softmax.add();
  uint32_t p[kKept][4][4], p_far[4][4];
#pragma unroll
  for (int i = kKept - 1; i >= 0; --i) round_to_operand<T>(p[i], s[i]);
  if constexpr (kBack == 2) split(p[0], p_far, seen);
  pin(y);
  wgmma_fence();
  mma_ab<T>(y, p[0], descriptor(memory.stages[own.stage].y), 0);
  if constexpr (kBack > 0) mma_ab<T>(y, p[1], descriptor(memory.stages[near.stage].y), 1);
  if constexpr (kBack == 2) mma_ab<T>(y, p_far, descriptor(memory.stages[far.stage].y), 1);
  wgmma_commit_group();
  wgmma_wait_group<0>();
  pin(y);
}

template <class T, class Shape>
__device__ __forceinline__ void consume_band(BandMemory<Shape>& memory,
                                             const BandForwardMaps& maps) {
  const BandTiles& tiles = maps.tiles;
  const bool leads_warp = threadIdx.x % 32 == 0;
  take_query_tiles<Shape>(
      tiles, threadIdx.x, [&](const TileSpan& span, int tile, auto query, auto own) {
        float* const lse = maps.lse + tiles.first_scalar(span.b, span.h);
        int position[2];  // of this thread's two rows
        float earlier[2] = {-INFINITY, -INFINITY};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          position[half] = tiles.position(span.group, tile, row_of(half));
          if (Shape::kAccumulate && position[half] >= 0) earlier[half] = lse[position[half]];
        }
        Reach reach = Reach::of(tiles);
        if constexpr (Shape::kDocuments) reach.load(tiles, span.b, position, 0);
        float y[Shape::Dv / 2];
        Softmax softmax{maps.scale};
        const int back = min(tile, tiles.tiles_back());
        if (back == 2)
          attend_band<T, 2>(y, softmax, memory, tiles, query, own, reach);
        else if (back == 1)
          attend_band<T, 1>(y, softmax, memory, tiles, query, own, reach);
        else
          attend_band<T, 0>(y, softmax, memory, tiles, query, own, reach);
        if (leads_warp) memory.done[query.stage].arrive();
        const Softmax::Row row[2] = {softmax.finish(0, earlier[0]), softmax.finish(1, earlier[1])};
#pragma unroll
        for (int half = 0; half < 2; ++half)
          if (threadIdx.x % 4 == 0 && position[half] >= 0) lse[position[half]] = row[half].lse;
        // Epilogue: y goes through shared memory, and each warp stores its own 16 rows by TMA.
        // y overwrites the queries, so that all warps must have read them first.
        if constexpr (!Shape::kAccumulate) warpgroup_sync();
        put_rows<T, Shape::kAccumulate>(y, row, memory.y(query));
        fence_proxy_async();
        __syncwarp();
        if (leads_warp) {
          store_tile_rows<Shape::Dv>(maps.y_rows, memory.y(query), tiles, span, tile,
                                     static_cast<int>(threadIdx.x) % kWarpgroup / 32 * 16);
          tma_store_wait_group_read<0>();
          memory.queries_empty[query.stage].arrive();
        }
        __syncwarp();
      });
  tma_store_wait_group_read<0>();
}

template <class T, class Shape>
struct BandForwardKernel {
  using SharedStorage = BandMemory<Shape>;
  static constexpr int kThreads = Shape::kThreads;
  static constexpr RegisterSplit kRegisters = Shape::kRegisters;

  __device__ __forceinline__ static void init(SharedStorage& memory, const BandForwardMaps& maps) {
    if (threadIdx.x == 0)
      prefetch(maps.q), prefetch(maps.k), prefetch(maps.v), prefetch(maps.y_rows);
    memory.init();
  }

  __device__ __forceinline__ static void produce(SharedStorage& memory,
                                                 const BandForwardMaps& maps) {
    if (threadIdx.x == 0) produce_band(memory, maps);
  }

  __device__ __forceinline__ static void consume(SharedStorage& memory,
                                                 const BandForwardMaps& maps) {
    consume_band<T>(memory, maps);
  }
};

// The memory map of README.md.
static_assert(sizeof(BandMemory<BandForwardShape<64, 64, false, false>>) == 139'456);
static_assert(sizeof(BandMemory<BandForwardShape<64, 64, true, false>>) == 229'632);
static_assert(sizeof(BandMemory<BandForwardShape<64, 128, false, false>>) == 213'160);
static_assert(sizeof(BandMemory<BandForwardShape<64, 128, true, false>>) == 221'328);
static_assert(sizeof(BandMemory<BandForwardShape<128, 128, false, false>>) == 229'536);
static_assert(sizeof(BandMemory<BandForwardShape<128, 128, true, false>>) == 229'496);
}  // namespace weft::attention::hopper
