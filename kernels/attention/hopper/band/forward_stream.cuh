// SPDX-License-Identifier: MIT
// How tiles reach the forward kernels over bands: shared memory and barriers, the producer, query
// tiles of a consumer, and y on its way back.
#pragma once

#include "kernels/attention/hopper/band/band.cuh"
#include "kernels/attention/hopper/softmax.cuh"

namespace weft::attention::hopper {
// kStorer: a thread of its own sends y to global memory. kInOrder: stages are given back in the
// order of query tiles (`done`), else each by itself (`empty`).
template <class Shape>
struct BandMemory {
  using Stage = PipelineState<Shape::kStages>;
  using QueryStage = PipelineState<Shape::kQueryStages>;
  static constexpr bool kInOrder = Shape::kInOrder;

  static constexpr int kWarps = kWarpgroup / 32;

  TilePair<Shape::Dqk, Shape::Dv> stages[Shape::kStages];  // keys, values
  char queries[Shape::kQueryStages][Shape::kQueryBytes];
  // keys_full, queries_full: TMA has written the stage. empty: no consumer reads it any more.
  // done: the consumer of a query tile reads no more keys. queries_empty: TMA has read y.
  // y_full: y has overwritten the queries; only a storer (kStorer) waits for it.
  Barrier keys_full[Shape::kStages], empty[kInOrder ? 0 : Shape::kStages],
      queries_full[Shape::kQueryStages], done[kInOrder ? Shape::kQueryStages : 0],
      queries_empty[Shape::kQueryStages], y_full[Shape::kStorer ? Shape::kQueryStages : 0];
  // the producer's: the last query tile that reads a stage
  int last_user[kInOrder ? Shape::kStages : 0];

  // Where y of a query tile goes: over the queries, or beside them where the pass adds.
  __device__ char* y(QueryStage s) {
    return queries[s.stage] + (Shape::kAccumulate ? Shape::kQ : 0);
  }

  // By all threads of the block, before anything else.
  __device__ void init() {
    if (threadIdx.x == 0) {
      constexpr int kProducers = 1;  // one thread, for itself and TMA
      constexpr int kStorers = Shape::kStorer ? 1 : kWarps;
      for (auto& full : keys_full) full.init(kProducers);
      for (int i = 0; i < (kInOrder ? 0 : Shape::kStages); ++i)
        empty[i].init(Shape::kConsumers * kWarps);
      for (int i = 0; i < Shape::kQueryStages; ++i) {
        queries_full[i].init(kProducers);
        if constexpr (kInOrder) done[i].init(kWarps);
        queries_empty[i].init(kStorers);
        if constexpr (Shape::kStorer) y_full[i].init(kWarps);
      }
      fence_proxy_async();
    }
    __syncthreads();
  }
};

// The producer thread where stages are given back in order. Key tiles of a span begin `tiles_back`
// before its first query tile.
template <class Shape>
__device__ __forceinline__ void produce_band(BandMemory<Shape>& memory,
                                             const BandForwardMaps& maps) {
  using Memory = BandMemory<Shape>;
  const BandTiles& tiles = maps.tiles;
  const int back = tiles.tiles_back();
  int stage = 0, query = 0, done = 0;  // numbers of the next tiles; how many query tiles are done
  for (int item = blockIdx.x; item < tiles.work_items(); item += gridDim.x) {
    const TileSpan span = tiles.work_item(item);
    const int first_query = query;
    for (int tile = max(span.first - back, 0); tile < span.end; ++tile, ++stage) {
      const auto in = Memory::Stage::of(stage);
      int& user = memory.last_user[in.stage];
      // The stage may be overwritten when its last reader, query tile `user`, is done. The loop
      // waits for every earlier query tile as well: the parity of a barrier tells only this phase
      // from the one before it.
      const int needed =
          max(stage < Shape::kStages ? 0 : user + 1, query + 1 - Shape::kQueryStages);
      for (; done < needed; ++done) {
        const auto used = Memory::QueryStage::of(done);
        memory.done[used.stage].wait(used.parity);
      }
      user = first_query + min(tile + back, span.end - 1) - span.first;
      if (tile >= span.first) {
        const auto own = Memory::QueryStage::of(query++);
        memory.queries_empty[own.stage].wait(own.parity ^ 1);
        memory.queries_full[own.stage].arrive_expect_tx(Shape::kQ +
                                                        (Shape::kAccumulate ? Shape::kY : 0));
        copy_tile<Shape::Dqk>(memory.queries[own.stage], maps.q, tiles, span, tile,
                              memory.queries_full[own.stage]);
        if constexpr (Shape::kAccumulate)
          copy_tile<Shape::Dv>(memory.y(own), maps.y, tiles, span, tile,
                               memory.queries_full[own.stage]);
      }
      load_pair(memory.stages[in.stage], maps.k, maps.v, tiles, span, tile,
                memory.keys_full[in.stage]);
    }
  }
}

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

// This warp's 16 rows of y, rounded, to `tile`; kAdd: y times row.now, plus what is there times
// row.kept.
template <class T, bool kAdd, int N>
__device__ __forceinline__ void put_rows(const float (&y)[N], const Softmax::Row (&row)[2],
                                         SharedAddress tile) {
#pragma unroll
  for (int k = 0; k < N / 8; ++k) {
    const uint32_t to =
        lane_address<64>(tile + k / 4 * kPanel, threadIdx.x % kWarpgroup / 32, k % 4);
    uint32_t earlier[4], sum[4];
    if constexpr (kAdd) ldmatrix(earlier, to);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Softmax::Row& of = row[i % 2];
      float low = y[8 * k + 2 * i] * of.now, high = y[8 * k + 2 * i + 1] * of.now;
      if constexpr (kAdd) {
        low = fmaf(low_half<T>(earlier[i]), of.kept, low);
        high = fmaf(high_half<T>(earlier[i]), of.kept, high);
      }
      sum[i] = pack<T>(low, high);
    }
    stmatrix(to, sum);
  }
}

// A thread of each warp of the producer but the first: stores every third tile of y; no consumer
// waits for that.
template <class Shape>
__device__ __forceinline__ void store_y(BandMemory<Shape>& memory, const BandForwardMaps& maps) {
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
      memory.y_full[query.stage].wait(query.parity);
      if (!Shape::kAccumulate && tile < span.end) {
        store_tile_rows<Shape::Dv>(maps.y, memory.y(query), tiles, span, tile, 0);
        tma_store_wait_group_read<0>();
      }
      memory.queries_empty[query.stage].arrive();
    }
  }
}
}  // namespace weft::attention::hopper
