// SPDX-License-Identifier: MIT
// The producer warpgroup of the backward kernels over a band: tiles to shared memory, and delta.
#pragma once

#include "kernels/attention/hopper/band/backward_memory.cuh"

namespace weft::attention::hopper {
// One thread: loads tiles by TMA, and says what they are. Without stages for y other warps load y.
template <class M>
__device__ __forceinline__ void load_tiles(M& memory, const BandBackward& g) {
  PipelineState<M::kStages> stage;
  PipelineState<M::kKeyStages> key;
  PipelineState<M::kYStages> y;
  for (TileIterator iterator(g.tiles); iterator; iterator.next()) {
    memory.pipelines.queries.acquire(stage);
    TileStep::of(iterator).write(memory.step[stage.stage]);
    load_pair(memory.stages[stage.stage], g.q, g.dy, g.tiles, iterator.span(), iterator.tile(),
              memory.pipelines.queries.full[stage.stage]);
    memory.pipelines.keys.acquire(key);
    load_pair(memory.keys[key.stage], g.k, g.v, g.tiles, iterator.span(), iterator.tile(),
              memory.pipelines.keys.full[key.stage]);
    if constexpr (M::kYStages > 0) {
      if (!g.accumulate) {
        Barrier& y_full = memory.pipelines.y.full[y.stage];
        memory.pipelines.y.acquire(y);
        y_full.arrive_expect_tx(sizeof(memory.y[0]));
        copy_tile<M::Dv>(memory.y[y.stage], g.y, g.tiles, iterator.span(), iterator.tile(), y_full);
        y.advance();
      }
    }
    stage.advance(), key.advance();
  }
  memory.pipelines.queries.acquire(stage);
  TileStep{{}, -1}.write(memory.step[stage.stage]);
  memory.pipelines.queries.full[stage.stage].arrive();
}

// A warp: starts fetching lse of queries, and delta where an earlier pass made it.
// cp_async_mbarrier_arrive() says when they are there. first: g.tiles.first_scalar() of the span.
template <class M, class At>
__device__ __forceinline__ void fetch_scalars(M& memory, const At& at, const BandBackward& g,
                                              const TileSpan& span, int tile, int64_t first) {
#pragma unroll 1  // registers are scarce
  for (int row = threadIdx.x % 32; row < kTile; row += 32) {
    const int position = g.tiles.position(span.group, tile, row);
    cp_async_4(memory.lse(at) + row * 4, g.lse + first + max(position, 0), position >= 0);
    if (g.accumulate)
      cp_async_4(memory.delta(at) + row * 4, g.delta + first + max(position, 0), position >= 0);
  }
}

// Warp 1: lse and delta of queries.
template <class M>
__device__ __forceinline__ void load_scalars(M& memory, const BandBackward& g) {
  PipelineState<M::kStages> stage;
  for (TileIterator iterator(g.tiles); iterator; iterator.next()) {
    const int64_t first = g.tiles.first_scalar(iterator.span().b, iterator.span().h);
    memory.pipelines.queries.acquire(stage);
    fetch_scalars(memory, stage.stage, g, iterator.span(), iterator.tile(), first);
    memory.pipelines.queries.full[stage.stage].arrive_cp_async();
    stage.advance();
  }
  memory.pipelines.queries.acquire(stage);
  memory.pipelines.queries.full[stage.stage].arrive();
}

// The dot product of row `row` of two tiles of D columns.
template <class T, int D>
__device__ __forceinline__ float row_product(SharedAddress x, SharedAddress y, int row) {
  float sum = 0;
#pragma unroll 2
  for (int chunk = 0; chunk < D / 8; ++chunk) {
    const uint32_t offset =
        chunk / 8 * kPanel + row * 128 + ((chunk % 8 ^ static_cast<int>(swizzle<64>(row))) << 4);
    sum = add_dot<T>(sum, ld_shared_16(x + offset), ld_shared_16(y + offset));
  }
  return sum;
}

// Warps 2 and 3: delta = dy . y, a row a lane.
template <class T, class M>
__device__ __forceinline__ void make_delta(M& memory, const BandBackward& g) {
  PipelineState<M::kStages> stage;
  PipelineState<M::kYStages> y;
  const int row = threadIdx.x % kTile;
  for (;;) {
    memory.pipelines.queries.wait(stage);
    const TileStep step = TileStep::read(memory.step[stage.stage]);
    if (step.met_before < 0) return;
    const TileCoord at = TileStep::read_coord(memory.step[stage.stage]);
    memory.pipelines.y.wait(y);
    const float sum = row_product<T, M::Dv>(memory.stages[stage.stage].y, memory.y[y.stage], row);
    st_shared_float(memory.delta(stage.stage) + row * 4, sum);
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      memory.pipelines.delta_full[stage.stage].arrive();
      memory.pipelines.y.empty[y.stage].arrive();
      memory.pipelines.queries.empty[stage.stage].arrive();
    }
    g.put_delta(at, row, sum, step.owns_queries);
    stage.advance(), y.advance();
  }
}

template <class T, class M>
__device__ __forceinline__ void produce(M& memory, const BandBackward& g) {
  switch (threadIdx.x / 32) {
    case 0:
      if (threadIdx.x == 0) load_tiles(memory, g);
      break;
    case 1: load_scalars(memory, g); break;
    default:
      if (!g.accumulate) make_delta<T>(memory, g);
  }
}
}  // namespace weft::attention::hopper
