// SPDX-License-Identifier: MIT
// Shared memory and barriers of the forward kernels over bands.
#pragma once

#include "kernels/attention/hopper/band/band.cuh"

#include <algorithm>
#include <cstddef>

namespace weft::attention::hopper {
// What fits a multiprocessor. kAccumulate: y and lse go on from what an earlier pass left.
template <int Dqk_, int Dv_, bool kAccumulate_, bool kDocuments_>
struct BandForwardShape {
  static constexpr int Dqk = Dqk_, Dv = Dv_;
  static constexpr bool kAccumulate = kAccumulate_, kDocuments = kDocuments_;
  static constexpr bool kStorer = false, kInOrder = true;
  // As many consumers as their registers allow.
  static constexpr bool kLarge = Dqk == 128 || (kAccumulate && Dv == 128);
  static constexpr int kConsumers = kLarge ? 2 : 3, kConsumerRegisters = kLarge ? 232 : 152,
                       kProducerRegisters = 40, kThreads = (1 + kConsumers) * kWarpgroup;
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

// kStorer: a thread of its own sends y to global memory. kInOrder: stages are given back in the
// order of query tiles (`done`), else each by itself (`empty`).
template <class Shape>
struct BandMemory {
  using Stage = PipelineState<Shape::kStages>;
  using QueryStage = PipelineState<Shape::kQueryStages>;
  static constexpr bool kInOrder = Shape::kInOrder;

  struct SharedStorage {
    struct {
      char keys[Shape::kQ], values[Shape::kY];
    } stages[Shape::kStages];

    char queries[Shape::kQueryStages][Shape::kQueryBytes];
    // keys_full, queries_full: TMA has written the stage. empty: no consumer reads it any more.
    // done: the consumer of a query tile reads no more keys. queries_empty: y is stored.
    // y_full: y has overwritten the queries; only a storer (kStorer) waits for it.
    uint64_t keys_full[Shape::kStages], empty[kInOrder ? 0 : Shape::kStages],
        queries_full[Shape::kQueryStages], done[kInOrder ? Shape::kQueryStages : 0],
        queries_empty[Shape::kQueryStages], y_full[Shape::kQueryStages];
    // the producer's: the last query tile that reads a stage
    int last_user[kInOrder ? Shape::kStages : 0];
  };

  static constexpr int kX = Shape::kQ, kStage = Shape::kQ + Shape::kY, kWarps = kWarpgroup / 32,
                       kBytes = sizeof(SharedStorage) + kPanelAlignment;
  static_assert(kBytes <= 227 * 1024);

  uint32_t base;

  __device__ static BandMemory of(const char* shared) { return {first_panel(shared)}; }

  __device__ uint32_t x(int stage) const { return base + stage * kStage; }

  __device__ uint32_t keys(Stage s) const { return x(s.stage); }

  __device__ uint32_t values(Stage s) const { return keys(s) + Shape::kQ; }

  __device__ uint32_t queries(QueryStage s) const {
    return WEFT_AT(queries) + s.stage * Shape::kQueryBytes;
  }

  __device__ uint32_t y(QueryStage s) const {
    return queries(s) + (Shape::kAccumulate ? Shape::kQ : 0);
  }

  __device__ uint32_t keys_full(Stage s) const { return WEFT_AT(keys_full) + s.stage * 8; }

  __device__ uint32_t queries_full(QueryStage s) const {
    return WEFT_AT(queries_full) + s.stage * 8;
  }

  __device__ uint32_t empty(int stage) const { return WEFT_AT(empty) + stage * 8; }

  __device__ uint32_t done(QueryStage s) const { return WEFT_AT(done) + s.stage * 8; }

  __device__ uint32_t queries_empty(QueryStage s) const {
    return WEFT_AT(queries_empty) + s.stage * 8;
  }

  __device__ uint32_t y_full(QueryStage s) const { return WEFT_AT(y_full) + s.stage * 8; }

  __device__ int* last_users(char* shared) const {
    return reinterpret_cast<SharedStorage*>(shared + (base - shared_address(shared)))->last_user;
  }

  __device__ void init() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < Shape::kStages; ++i) {
        mbarrier_init(keys_full({i}), 1);
        if (!kInOrder) mbarrier_init(empty(i), Shape::kConsumers * kWarps);
      }
      for (int i = 0; i < Shape::kQueryStages; ++i) {
        mbarrier_init(queries_full({i}), 1);
        if (kInOrder) mbarrier_init(done({i}), kWarps);
        mbarrier_init(queries_empty({i}), Shape::kStorer ? 1 : kWarps);
        mbarrier_init(y_full({i}), kWarps);
      }
      fence_proxy_async();
    }
    __syncthreads();
  }
};

// Calls attend(span, tile, query stage, stage of its own keys) for every kConsumers-th query tile
// of the block. `thread`: threadIdx.x, or this_thread() where registers are scarce.
template <class Shape>
__device__ __forceinline__ void take_query_tiles(const BandTiles& tiles, auto thread,
                                                 const auto& attend) {
  using Memory = BandMemory<Shape>;
  const int back = tiles.tiles_back();
  // number of the next query tile of this warpgroup
  int mine = warp_uniform(thread / kWarpgroup - 1);
  int stage = 0, query = 0;  // of the first tiles of the span
  for (int item = blockIdx.x; item < tiles.work_items(); item += gridDim.x) {
    const TileSpan span = tiles.work_item(item);
    const int before = min(span.first, back), count = span.end - span.first;
    for (; mine < query + count; mine += Shape::kConsumers)
      attend(span, span.first + mine - query, Memory::QueryStage::of(mine),
             Memory::Stage::of(stage + before + mine - query));
    stage += before + count;
    query += count;
  }
}

// A thread of each warp of the producer but the first: stores every third tile of y; no consumer
// waits for that.
template <class Shape>
__device__ __forceinline__ void store_y(const BandMemory<Shape>& memory,
                                        const BandForwardMaps& maps) {
  constexpr int kThreads = kWarpgroup / 32 - 1;
  const BandTiles& tiles = maps.tiles;
  int turn = static_cast<int>(threadIdx.x / 32) - 1;  // tiles until the next one of this thread
  typename BandMemory<Shape>::QueryStage query;
  for (int item = blockIdx.x; item < tiles.work_items(); item += gridDim.x) {
    const TileSpan span = tiles.work_item(item);
    // Out of order each consumer has a query stage in every span.
    const int end = Shape::kInOrder ? span.end : span.first + Shape::kConsumers;
    for (int tile = span.first; tile < end; ++tile, query.advance()) {
      if (turn-- > 0) continue;
      turn = kThreads - 1;
      mbarrier_wait(memory.y_full(query), query.parity);
      if (!Shape::kAccumulate && tile < span.end) {
        store_tile_rows<Shape::Dv>(maps.y, memory.y(query), tiles, span, tile, 0);
        tma_store_wait_group_read<0>();
      }
      mbarrier_arrive(memory.queries_empty(query));
    }
  }
}
}  // namespace weft::attention::hopper
