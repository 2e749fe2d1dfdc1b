// SPDX-License-Identifier: MIT
// Backward attention on Hopper in one walk over columns: what its warpgroups share. Two own a tile of keys
// each and sum dK and dV; a third sums dQ of each tile of queries over both, from dS in shared memory; a
// thread of the producer adds that to what the tasks before left in global memory, when it is this task's
// turn.
#pragma once

#include "kernels/attention/hopper/tma_producer.cuh"

namespace weft::attention::hopper {

// Sums of dQ on their way to global memory: a tile of queries of one (batch, head), tile -1: there are no
// more. The sums of `turn` tasks are there already.
struct QueryPlace {
  int tile, turn;
};

struct FusedMemory : Memory<kTaskTiles, 64, 64, true, true, 5, 2, true> {
  using Base = Memory<kTaskTiles, 64, 64, true, true, 5, 2, true>;
  static constexpr bool kFused = true;
  static constexpr int kProducingWarps = 2;
  static constexpr int kWarps = kWarpgroup / 32, kThreads = (2 + kOwners) * kWarpgroup,
                       kBuffers = 2;  // of dS of each owner, and of dQ, a thread of the producer for each
  static constexpr int kDqBytes = kTile * 64 * 4;
  static constexpr int kScores = (Base::kEnd + 1023) / 1024 * 1024,
                       kOuts = kScores + kOwners * kBuffers * kPanel, kPlaces = kOuts + kBuffers * kDqBytes,
                       kMoreBarriers = kPlaces + kBuffers * 8,
                       kBytes = kMoreBarriers + (2 * kOwners + 2) * kBuffers * 8 + 1024;
  static_assert(kBytes <= 227 * 1024);

  __device__ static FusedMemory of(const char* shared) { return {Base::of(shared)}; }
  // dS^T of an owner: rows are keys.
  __device__ std::uint32_t scores(int owner, int buffer) const {
    return base + kScores + (owner * kBuffers + buffer) * kPanel;
  }
  __device__ std::uint32_t sums(int buffer) const { return base + kOuts + buffer * kDqBytes; }
  __device__ std::uint32_t place(int buffer) const { return base + kPlaces + buffer * 8; }
  __device__ std::uint32_t scores_full(int owner, int buffer) const {
    return base + kMoreBarriers + (owner * kBuffers + buffer) * 8;
  }
  __device__ std::uint32_t scores_free(int owner, int buffer) const {
    return scores_full(kOwners + owner, buffer);
  }
  __device__ std::uint32_t dq_full(int buffer) const { return scores_full(2 * kOwners, buffer); }
  __device__ std::uint32_t dq_free(int buffer) const { return dq_full(kBuffers + buffer); }

  // Behind the masks of a stage: its tile of queries, and whose turn it is to add to it (TileMap::col_turn).
  __device__ void write_turn(int stage, int tile, int turn) const {
    asm volatile("st.shared.v2.s32 [%0], {%1, %2};" ::"r"(info(stage) + 8), "r"(tile), "r"(turn) : "memory");
  }

  // By all threads of the block, before anything else.
  __device__ void init() const {
    if (threadIdx.x == 0) {
      constexpr int kReaders = (kOwners + 1) * kWarps;
      for (int i = 0; i < kStages; ++i) mbarrier_init(full(i), 1 + 32), mbarrier_init(free(i), kReaders);
      for (int i = 0; i < kSlots; ++i) mbarrier_init(slot_full(i), 1), mbarrier_init(slot_free(i), kReaders);
      for (int i = 0; i < kOwners * kBuffers; ++i)
        mbarrier_init(scores_full(0, i), kWarps), mbarrier_init(scores_free(0, i), kWarps);
      for (int i = 0; i < kBuffers; ++i) mbarrier_init(dq_full(i), kWarps), mbarrier_init(dq_free(i), 1);
      fence_proxy_async();
    }
    __syncthreads();
  }
};

// What the walk needs in global memory beside the tensors: of each row less_lse() and delta times
// kProbabilityUnit (fragments.cuh); of each tile of queries the sums of dQ in the order of
// the lanes that hold them, and how many tasks have added to them.
struct FusedScratch {
  float2* numbers = nullptr;      // (B, H, T)
  float* sums = nullptr;          // (B, H, tiles, kTile * 64)
  std::int32_t* turns = nullptr;  // (B, H, tiles)
  int tiles = 0;

  __device__ __forceinline__ float* dq_of(int tile) const {
    return sums + static_cast<std::int64_t>(tile) * (kTile * 64);
  }
  // Until the sums of the tasks before are there.
  __device__ __forceinline__ void wait_for_turn(QueryPlace place) const {
    for (int turn = -1; turn != place.turn;)
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(turn) : "l"(turns + place.tile) : "memory");
  }
  static FusedScratch of(const AttentionBackward& g, const AttentionPass& pass) {
    const std::int64_t pairs = g.q.batch * g.q.heads;
    FusedScratch s;
    s.tiles = pass.query_tiles;
    s.sums = static_cast<float*>(g.scratch.data);
    s.numbers = reinterpret_cast<float2*>(s.sums + pairs * s.tiles * kTile * 64);
    s.turns = reinterpret_cast<std::int32_t*>(s.numbers + pairs * g.q.time);
    return s;
  }
};

}  // namespace weft::attention::hopper
