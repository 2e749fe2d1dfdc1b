// SPDX-License-Identifier: MIT
// Backward attention as one kernel: two warpgroups own a tile of keys each, a third accumulates dQ
// of each query tile over both, from dS in shared memory. With heads of 128 there are no registers
// for a third: each owner accumulates half of the columns of dQ. A producer thread adds dQ to
// global memory by turns.
#pragma once

#include "kernels/attention/hopper/epilogue.cuh"
#include "kernels/attention/hopper/key_stationary.cuh"
#include "kernels/attention/hopper/producer.cuh"
#include "kernels/device/dependent_launch.cuh"
#include "kernels/device/global_memory.cuh"

namespace weft::attention::hopper {
// dQ of a query tile (-1: no more) on its way to global memory; `turn` work items have added to it.
struct QueryPlace {
  int tile, turn;
};

template <int D>
using FusedStages =
    Memory<kTaskTiles, D, D, true, true, /* kStages */ D == 64 ? 5 : 2, D == 64 ? 2 : 1, true>;

template <int D>
struct FusedMemory : FusedStages<D> {
  using Base = FusedStages<D>;
  using Base::info, Base::kOwners, Base::kWarps, Base::own_pipeline, Base::pipeline;
  static constexpr bool kFused = true, kDqGroup = D == 64;  // whether a third warpgroup makes dQ
  static constexpr int kProducingWarps = 2;
  // Of dS of each owner, and of dQ: one thread of the producer sends each of these.
  static constexpr int kBuffers = 2;
  static constexpr int kDqParts = D / 64;  // of 64 columns: without that warpgroup, each owner's
  static constexpr int kThreads = (1 + kOwners + kDqGroup) * kWarpgroup;

  QueryPlace place[kBuffers];                 // of what is in dq
  QueryPlace of_ds[kDqGroup ? 0 : kBuffers];  // where dQ of what is in ds belongs
  Pipeline<kBuffers> ds_pipeline[kOwners], dq_pipeline;
  alignas(kPanelAlignment) Panel ds[kOwners][kBuffers];  // dS^T: rows are keys
  float4 dq[kBuffers][kDqParts][8][kWarpgroup];

  // Behind a stage's mask indices: its query tile, and whose turn it is to add (TileMap::col_turn).
  __device__ void write_turn(int stage, int tile, int turn) {
    st_shared_int2(shared_address(&info[stage][2]), {tile, turn});
  }

  __device__ void init() {
    if (threadIdx.x == 0) {
      // A thread of the producer, for itself and TMA; the lanes whose cp.async fetch scalars.
      constexpr int kProducers = 1 + 32;
      constexpr int kReaders = (kOwners + kDqGroup) * kWarps;  // the owners, and who makes dQ
      pipeline.init(kProducers, kReaders);
      own_pipeline.init(1, kReaders);
      for (auto& of_owner : ds_pipeline) of_owner.init(kWarps, kDqGroup ? kWarps : kReaders);
      dq_pipeline.init(kDqParts * kWarps, 1);
      fence_proxy_async();
    }
    __syncthreads();
  }
};

// The memory map of README.md.
static_assert(sizeof(FusedMemory<64>) == 216'064);
static_assert(sizeof(FusedMemory<128>) == 231'424);

// In global memory: of each row less_lse() and delta times kProbabilityUnit (key_stationary.cuh);
// of each query tile dQ, in the order of the lanes that hold it, 64 columns after the other, and
// how many work items have added to it.
struct FusedScratch {
  float2* scalars = nullptr;  // (B, H, T)
  float* dq = nullptr;        // (B, H, tiles, columns * kTile)
  int32_t* turns = nullptr;   // (B, H, tiles)
  int tiles = 0, columns = 0;

  __device__ __forceinline__ float* dq_of(int tile) const {
    return dq + static_cast<int64_t>(tile) * columns * kTile;
  }

  // Until earlier work items have added their parts.
  __device__ __forceinline__ void wait_for_turn(QueryPlace place) const {
    while (ld_acquire_gpu(turns + place.tile) != place.turn) {}
  }

  static FusedScratch of(const AttentionBackward& g, const AttentionPass& pass) {
    const int64_t pairs = g.q.batch * g.q.heads;
    FusedScratch s;
    s.tiles = pass.query_tiles;
    s.columns = g.q.size > 64 ? 128 : 64;
    s.dq = static_cast<float*>(g.scratch.data);
    s.scalars = reinterpret_cast<float2*>(s.dq + pairs * s.tiles * s.columns * kTile);
    s.turns = reinterpret_cast<int32_t*>(s.scalars + pairs * g.q.time);
    return s;
  }
};

// ---- dQ ----

template <class T>
class FusedDqAccumulator {
  using M = FusedMemory<64>;

 public:
  __device__ FusedDqAccumulator(M& memory, const AttentionBackward& g, const AttentionPass& pass,
                                const FusedScratch& scratch)
      : memory_(memory),
        g_(g),
        pass_(pass),
        scratch_(scratch) {}

  __device__ __forceinline__ void run() {
    for (;;) {
      memory_.own_pipeline.wait(own_stage_);
      const auto& work = memory_.work[own_stage_.stage];
      if (warp_uniform(work.end)) break;
      const int pair = warp_uniform(work.b * static_cast<int>(g_.q.heads) + work.h);
      for (bool more = !warp_uniform(work.empty); more;) more = step(pair);
      memory_.own_pipeline.release(own_stage_.stage);
      own_stage_.advance();
    }
    for (int i = 0; i < M::kBuffers; ++i) open(), close({-1, 0});
  }

 private:
  // A query tile of one (batch, head); false: it was the last of the work item.
  __device__ __forceinline__ bool step(int pair) {
    memory_.pipeline.wait(stage_);
    const int4 told = ld_shared_int4(shared_address(memory_.info[stage_.stage]));
    const int info[2] = {warp_uniform(told.x), warp_uniform(told.y)};
    QueryPlace place{told.z, warp_uniform(told.w)};
    memory_.pipeline.release(stage_.stage);
    stage_.advance();
    const bool has[2] = {info[0] >> 1 != kSkip, info[1] >> 1 != kSkip};
    float dq[32];
    place.tile += pair * scratch_.tiles;
    if (place.turn < 0) {
      finish(dq, has, pair, {place.tile, ~place.turn});
    } else {
      clear(dq);
      sum(dq, has);
      open();
#pragma unroll
      for (int i = 0; i < 8; ++i)
        st_shared_float4(shared_address(&memory_.dq[out_.stage][0][i][threadIdx.x % kWarpgroup]),
                         {dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]});
      close(place);
    }
    return !(info[0] & 1);
  }

  __device__ __forceinline__ static void clear(float (&dq)[32]) {
#pragma unroll
    for (int i = 0; i < 32; ++i) dq[i] = 0;
  }

  // The last turn: this work item's part is added to what earlier ones left, and rounded.
  __device__ __forceinline__ void finish(float (&dq)[32], const bool (&has)[2], int pair,
                                         QueryPlace place) {
    const int heads = static_cast<int>(g_.q.heads), h = pair % heads, b = pair / heads;
    const int32_t* order = pass_.maps[g_.maps.map_of(b, h)].query_order +
                           static_cast<int64_t>(place.tile - pair * scratch_.tiles) * kTile;
    const int position[2] = {__ldg(order + row_of(0)), __ldg(order + row_of(1))};
    clear(dq);
    if (place.turn > 0) {
      scratch_.wait_for_turn(place);
      const auto* parts =
          reinterpret_cast<const float4*>(scratch_.dq_of(place.tile)) + threadIdx.x % kWarpgroup;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float4 x = __ldcg(parts + i * kWarpgroup);
        dq[4 * i] = x.x, dq[4 * i + 1] = x.y, dq[4 * i + 2] = x.z, dq[4 * i + 3] = x.w;
      }
    }
    sum(dq, has);
    const Rows out = Rows::of(g_.dq, b, h);
    const auto scale = static_cast<float>(g_.scale);
    store_row<T, 0>(dq, scale, false, 1.0f, position[0], out);
    store_row<T, 1>(dq, scale, false, 1.0f, position[1], out);
  }

  __device__ __forceinline__ void sum(float (&dq)[32], const bool (&has)[2]) {
    if (has[0]) memory_.ds_pipeline[0].wait(ds_[0]);
    if (has[1]) memory_.ds_pipeline[1].wait(ds_[1]);
    if (has[0] && has[1])
      add<0, 1>(dq);
    else
      has[0] ? add<0, 0>(dq) : add<1, 1>(dq);
    if (has[0]) release(0);
    if (has[1]) release(1);
  }

  template <int kFirst, int kLast>
  __device__ __forceinline__ void add(float (&dq)[32]) const {
    pin(dq);
    wgmma_fence();
#pragma unroll
    for (int owner = kFirst; owner <= kLast; ++owner) {
      const Descriptor ds = descriptor(memory_.ds[owner][ds_[owner].stage]),
                       k = descriptor(memory_.own[own_stage_.stage][owner].x);
      mma_atb<T>(dq, ds, k, 1);
    }
    wgmma_commit_group();
    wgmma_wait_group<0>();
    pin(dq);
  }

  __device__ __forceinline__ void release(int owner) {
    memory_.ds_pipeline[owner].release(ds_[owner].stage);
    ds_[owner].advance();
  }

  // A buffer for dQ, from when it is free to when it is full.
  __device__ __forceinline__ void open() { memory_.dq_pipeline.acquire(out_); }

  __device__ __forceinline__ void close(QueryPlace place) {
    if (is_warpgroup_leader())
      st_shared_int2(shared_address(&memory_.place[out_.stage]), {place.tile, place.turn});
    fence_proxy_async();
    memory_.dq_pipeline.full[out_.stage].arrive_warp();
    out_.advance();
  }

  M& memory_;
  const AttentionBackward& g_;
  const AttentionPass& pass_;
  const FusedScratch& scratch_;
  PipelineState<M::kStages> stage_;
  PipelineState<M::kOwnStages> own_stage_;
  PipelineState<M::kBuffers> ds_[2];
  PipelineState<M::kBuffers> out_;
};

// One thread for each buffer of dQ.
template <int D>
class TurnTaker {
 public:
  __device__ TurnTaker(FusedMemory<D>& memory, const FusedScratch& scratch, int buffer)
      : memory_(memory),
        scratch_(scratch),
        buffer_(buffer) {}

  __device__ __forceinline__ void run() {
    for (int parity = 0;; parity ^= 1) {
      memory_.dq_pipeline.full[buffer_].wait(parity);
      const int2 told = ld_shared_int2(shared_address(&memory_.place[buffer_]));
      const QueryPlace place{told.x, told.y};
      if (place.tile < 0) break;
      scratch_.wait_for_turn(place);
      send(place);
      memory_.dq_pipeline.empty[buffer_].arrive();
      finish(place);
    }
  }

 private:
  // Returns when shared memory has been read.
  __device__ __forceinline__ void send(QueryPlace place) const {
    float* to = scratch_.dq_of(place.tile);
    const auto& from = memory_.dq[buffer_];
    fence_proxy_async_global();
    place.turn == 0 ? bulk_store(to, from, sizeof(from)) : bulk_reduce_add(to, from, sizeof(from));
    tma_store_commit_group();
    tma_store_wait_group_read<0>();
  }

  // Once dQ is there it is the next work item's turn.
  __device__ __forceinline__ void finish(QueryPlace place) const {
    tma_store_wait_all();
    fence_proxy_async_global();
    st_release_gpu(scratch_.turns + place.tile, place.turn + 1);
  }

  FusedMemory<D>& memory_;
  const FusedScratch& scratch_;
  int buffer_;
};

// ---- the kernels that run before and, with heads of 128, after ----

// dQ of a query tile that attends nothing, which no work item has.
__device__ __forceinline__ void clear_unattended(const AttentionBackward& g,
                                                 const AttentionPass& pass, int pair, int tile) {
  const int heads = static_cast<int>(g.q.heads), h = pair % heads, b = pair / heads;
  const TileMap& map = pass.maps[g.maps.map_of(b, h)];
  if (tile >= map.query_tiles || map.row_start[tile] != map.row_start[tile + 1]) return;
  const Rows out = Rows::of(g.dq, b, h);
  for (int i = 0; i < kTile; ++i) {
    const int position = map.query_order[static_cast<int64_t>(tile) * kTile + i];
    for (uint32_t chunk = 0; position >= 0 && chunk < out.chunks; ++chunk)
      *reinterpret_cast<uint4*>(const_cast<char*>(out.at(position, chunk))) =
          make_uint4(0, 0, 0, 0);
  }
}

// lse and delta of rows, a lane for eight columns, several rows in flight; and it clears `turns`.
inline constexpr int kRowThreads = 256, kRowsAhead = 4;
template <int D>
inline constexpr int kRowsOfBlock = kRowThreads / (D / 8) * kRowsAhead;

template <class T, int D>
__global__ void __launch_bounds__(kRowThreads)
    begin_fused_kernel(const __grid_constant__ AttentionBackward g,
                       const __grid_constant__ AttentionPass pass,
                       const __grid_constant__ FusedScratch scratch) {
  constexpr int kRowLanes = D / 8;
  griddepcontrol_launch_dependents();
  // Rows are fewer than 2^32: each has 16 bytes or more in every tensor.
  const auto heads = static_cast<unsigned>(g.q.heads), time = static_cast<unsigned>(g.q.time),
             rows = static_cast<unsigned>(g.q.batch) * time * heads,
             first = blockIdx.x * kRowsOfBlock<D> + threadIdx.x / kRowLanes;
  const unsigned chunk = threadIdx.x % kRowLanes;
  unsigned at[kRowsAhead];
  float lse[kRowsAhead];
  uint4 y_part[kRowsAhead], dy_part[kRowsAhead];
#pragma unroll
  for (int i = 0; i < kRowsAhead; ++i) {
    const unsigned row = first + i * (kRowThreads / kRowLanes), bt = row / heads,
                   h = row - bt * heads, b = bt / time, t = bt - b * time;
    at[i] = (b * heads + h) * time + t;
    y_part[i] = dy_part[i] = {};
    if (row >= rows) continue;
    if (chunk == 0) lse[i] = __ldg(static_cast<const float*>(g.lse.data) + at[i]);
    const Rows y = Rows::of(g.y, b, h), dy = Rows::of(g.dy, b, h);
    if (chunk >= y.chunks) continue;
    y_part[i] = __ldg(reinterpret_cast<const uint4*>(y.at(static_cast<int>(t), chunk)));
    dy_part[i] = __ldg(reinterpret_cast<const uint4*>(dy.at(static_cast<int>(t), chunk)));
  }
#pragma unroll
  for (int i = 0; i < kRowsAhead; ++i) {
    float sum = add_dot<T>(0, y_part[i], dy_part[i]);
#pragma unroll
    for (int lanes = kRowLanes / 2; lanes > 0; lanes /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (chunk == 0 && first + i * (kRowThreads / kRowLanes) < rows)
      scratch.scalars[at[i]] = {less_lse<T>(lse[i]), sum * kProbabilityUnit<T>};
  }
  const int64_t tile = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  if (tile >= g.q.batch * g.q.heads * scratch.tiles) return;
  scratch.turns[tile] = 0;
  if constexpr (D == 64)
    clear_unattended(g, pass, static_cast<int>(tile / scratch.tiles),
                     static_cast<int>(tile % scratch.tiles));
}

// dQ of heads of 128 from scratch to its tensor, rounded: a query tile a block, its halves one
// after the other. Tiles that no work item has added to are zeros.
inline constexpr int kRoundThreads = 2 * kWarpgroup;

template <class T>
__global__ void __launch_bounds__(kRoundThreads)
    round_dq_kernel(const __grid_constant__ AttentionBackward g,
                    const __grid_constant__ AttentionPass pass,
                    const __grid_constant__ FusedScratch scratch) {
  const int tile = static_cast<int>(blockIdx.x) % pass.query_tiles,
            pair = static_cast<int>(blockIdx.x) / pass.query_tiles,
            heads = static_cast<int>(g.q.heads), h = pair % heads, b = pair / heads,
            half = static_cast<int>(threadIdx.x) / kWarpgroup;
  const TileMap& map = pass.maps[g.maps.map_of(b, h)];
  griddepcontrol_wait();
  if (tile >= map.query_tiles) return;
  const int32_t* order = map.query_order + static_cast<int64_t>(tile) * kTile;
  const int position[2] = {__ldg(order + row_of(0)), __ldg(order + row_of(1))};
  float dq[32];
  const bool attended = scratch.turns[blockIdx.x] > 0;
  const auto* from = reinterpret_cast<const float4*>(scratch.dq_of(static_cast<int>(blockIdx.x))) +
                     half * 8 * kWarpgroup + threadIdx.x % kWarpgroup;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float4 x = attended ? __ldcg(from + i * kWarpgroup) : float4{};
    dq[4 * i] = x.x, dq[4 * i + 1] = x.y, dq[4 * i + 2] = x.z, dq[4 * i + 3] = x.w;
  }
  Rows out = Rows::of(g.dq, b, h);
  out.base += half * 128;
  out.chunks = static_cast<uint32_t>(max(static_cast<int>(out.chunks) - half * 8, 0));
  store_rows<T>(dq, static_cast<float>(g.scale), false, position, out);
}
}  // namespace weft::attention::hopper
