// SPDX-License-Identifier: MIT
// What the consumers of the backward kernels over bands share. Scores are transposed (rows are
// keys), so that P^T and dS^T are A operands in registers.
#pragma once

#include "kernels/attention/hopper/band/backward_stream.cuh"
#include "kernels/attention/hopper/masks.cuh"

namespace weft::attention::hopper {
// ---- scores to P and dS ----

// Scores into probabilities; `lse` of the queries in shared memory, `scale` times log2(e).
template <int N>
__device__ __forceinline__ void exponentiate(float (&s)[N], SharedAddress lse, float scale) {
#pragma unroll
  for (int j = 0; j < N / 4; ++j) {
    const float2 of_column = ld_shared_float2(lse + (8 * j + threadIdx.x % 4 * 2) * 4);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      s[4 * j + i] =
          exp2_fast(fmaf(s[4 * j + i], scale, (i % 2 ? of_column.y : of_column.x) * -kLog2E));
  }
}

// dP into dS; `delta` of the queries in shared memory.
template <int N>
__device__ __forceinline__ void differentiate(float (&dp)[N], const float (&p)[N],
                                              SharedAddress delta) {
#pragma unroll
  for (int j = 0; j < N / 4; ++j) {
    const float2 of_column = ld_shared_float2(delta + (8 * j + threadIdx.x % 4 * 2) * 4);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      dp[4 * j + i] = p[4 * j + i] * (dp[4 * j + i] - (i % 2 ? of_column.y : of_column.x));
  }
}

// ---- accumulators to global memory ----

// Stores a panel of a tile. TMA clips elements out of range; `add` reduces into memory.
__device__ __forceinline__ void store_panel(const CUtensorMap& to, SharedAddress from, int panel,
                                            const BandTiles& tiles, const TileCoord& at, bool add) {
  const int row = at.tile * kTile, column = at.group * tiles.columns();
  if (add)
    tma_reduce_add(to, from, panel * 64, row, column, at.h, at.b);
  else
    tma_store(to, from, panel * 64, row, column, at.h, at.b);
  tma_store_commit_group();
}

// 64 columns of accumulators times `factor`, rounded, to a panel in shared memory.
template <class T, int N>
__device__ __forceinline__ void put_panel(const float (&c)[N], int panel, float factor,
                                          SharedAddress out) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    uint32_t r[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int first = 32 * panel + 8 * k + 2 * i;
      r[i] = pack<T>(c[first] * factor, c[first + 1] * factor);
    }
    stmatrix(lane_address<64>(out, threadIdx.x % kWarpgroup / 32, k), r);
  }
}

// The same, and on to global memory; by all threads of warpgroup `group`. `out`: a panel that
// nobody reads any more once at most kPending stores of the thread that leads are under way.
template <class T, int kPending = 0, int N>
__device__ __forceinline__ void send_panel(int group, const float (&c)[N], int panel, float factor,
                                           SharedAddress out, const CUtensorMap& to,
                                           const BandBackward& g, const TileCoord& at) {
  if (is_warpgroup_leader()) tma_store_wait_group_read<kPending>();
  warpgroup_sync(group);
  put_panel<T>(c, panel, factor, out);
  fence_proxy_async();
  warpgroup_sync(group);
  if (is_warpgroup_leader()) store_panel(to, out, panel, g.tiles, at, g.accumulate);
}

// ---- dK and dV over short bands ----

// What a consumer warpgroup holds of a key tile, and how queries add to it.
template <class T, class M, int kQueries, bool kDocuments>
class KeyGradients {
 protected:
  static constexpr int kSteps = kQueries / 16, kParts = kTile / kQueries;

  __device__ KeyGradients(M& memory, const BandBackward& g)
      : memory_(memory),
        g_(g),
        reach_(Reach::of(g.tiles)) {}

  // P^T and dS^T of kQueries queries, and the MMAs that add to dV and dK; the last part leaves them
  // in flight. `ds_panel` takes dS^T once barrier `ds_empty` has passed that phase.
  __device__ __forceinline__ void meet_part(int back, int key_stage, int part, Panel& ds_panel,
                                            const Barrier& ds_empty, int phase) {
    float s[kQueries / 2], ds[kQueries / 2];
    const int first = part * kQueries * 128;  // bytes of a panel
    if constexpr (kDocuments)
      if (back == 0 && part == 0) find_reach();
    pin(s), pin(ds);
    wgmma_fence();
    mma_abt<T, M::Dqk>(s, memory_.keys[key_stage].x,
                       shared_address(memory_.stages[stage_.stage].x) + first);
    wgmma_commit_group();
    mma_abt<T, M::Dv>(ds, memory_.keys[key_stage].y,
                      shared_address(memory_.stages[stage_.stage].y) + first);
    wgmma_commit_group();
    wgmma_wait_group<1>();
    pin(s);
    exponentiate(s, memory_.lse(stage_.stage) + part * kQueries * 4, g_.scale * kLog2E);
    if constexpr (kDocuments) reach_.compare(g_.tiles);
    hide_from_queries(s, g_.tiles, back, part * kQueries, reach_);
    if (part == 0) {
      if (!g_.accumulate) memory_.pipelines.delta_full[stage_.stage].wait(stage_.parity);
      ds_empty.wait(phase);
    }
    wgmma_wait_group<0>();
    pin(ds);
    differentiate(ds, s, memory_.delta(stage_.stage) + part * kQueries * 4);
    uint32_t p_operand[kSteps][4], ds_operand[kSteps][4];
    round_to_operand<T>(p_operand, s);
    round_to_operand<T>(ds_operand, ds);
    store_operand(ds_panel, ds_operand, part * kSteps);
    pin(dk_), pin(dv_);
    wgmma_fence();
    const Descriptor dy = descriptor(shared_address(memory_.stages[stage_.stage].y) + first),
                     q = descriptor(shared_address(memory_.stages[stage_.stage].x) + first);
    mma_ab<T>(dv_, p_operand, dy, back > 0 || part > 0);
    mma_ab<T>(dk_, ds_operand, q, back > 0 || part > 0);
    wgmma_commit_group();
    if (part + 1 < kParts) {
      wgmma_wait_group<0>();
      pin(dk_), pin(dv_);
    }
  }

  // Of the keys that meet their own queries: the first of those that they meet.
  __device__ __forceinline__ void find_reach() {
    const TileCoord at = TileStep::read_coord(memory_.step[stage_.stage]);
    const int position[2] = {g_.tiles.position(at.group, at.tile, row_of(0)),
                             g_.tiles.position(at.group, at.tile, row_of(1))};
    reach_.load(g_.tiles, at.b, position, 1);
  }

  M& memory_;
  const BandBackward& g_;
  Reach reach_;
  PipelineState<M::kStages> stage_;
  float dk_[M::Dqk / 2], dv_[M::Dv / 2];
};
}  // namespace weft::attention::hopper
