// SPDX-License-Identifier: MIT
// Backward attention on Hopper as one kernel: what its warpgroups share. Two own a tile of keys each and
// accumulate dK and dV. A third accumulates dQ of each query tile over both, from dS in shared memory. A
// thread of the producer adds that to what earlier work items left in global memory, when it is this work
// item's turn.
#pragma once

#include "kernels/attention/hopper/tma_producer.cuh"

namespace weft::attention::hopper {

// dQ of a query tile of one (batch, head) on its way to global memory; tile -1: there are no more. `turn`
// work items have added to it already.
struct QueryPlace {
  int tile, turn;
};

struct FusedMemory : Memory<kTaskTiles, 64, 64, true, true, 5, 2, true> {
  using Base = Memory<kTaskTiles, 64, 64, true, true, 5, 2, true>;
  static constexpr bool kFused = true;
  static constexpr int kProducingWarps = 2;
  static constexpr int kWarps = kWarpgroup / 32, kThreads = (2 + kOwners) * kWarpgroup,
                       kBuffers = 2;  // of dS of each owner, and of dQ: one thread of the producer sends each
  static constexpr int kDqBytes = kTile * 64 * 4;

  struct SharedStorage {
    Base::SharedStorage base;
    alignas(kPanelAlignment) Panel ds[kOwners][kBuffers];  // dS^T: rows are keys
    char dq[kBuffers][kDqBytes];
    QueryPlace place[kBuffers];
    std::uint64_t ds_full[kOwners][kBuffers], ds_free[kOwners][kBuffers], dq_full[kBuffers],
        dq_free[kBuffers];
  };
  static constexpr int kBytes = sizeof(SharedStorage) + kPanelAlignment;
  static_assert(kBytes <= 227 * 1024);

  __device__ static FusedMemory of(const char* shared) { return {Base::of(shared)}; }
  __device__ std::uint32_t ds(int owner, int buffer) const {
    return base + int{offsetof(SharedStorage, ds)} + (owner * kBuffers + buffer) * kPanel;
  }
  __device__ std::uint32_t dq(int buffer) const {
    return base + int{offsetof(SharedStorage, dq)} + buffer * kDqBytes;
  }
  __device__ std::uint32_t place(int buffer) const {
    return base + int{offsetof(SharedStorage, place)} + buffer * 8;
  }
  __device__ std::uint32_t ds_full(int owner, int buffer) const {
    return base + int{offsetof(SharedStorage, ds_full)} + (owner * kBuffers + buffer) * 8;
  }
  __device__ std::uint32_t ds_free(int owner, int buffer) const { return ds_full(kOwners + owner, buffer); }
  __device__ std::uint32_t dq_full(int buffer) const { return ds_full(2 * kOwners, buffer); }
  __device__ std::uint32_t dq_free(int buffer) const { return dq_full(kBuffers + buffer); }

  // Behind the mask indices of a stage: its query tile, and whose turn it is to add to it
  // (TileMap::col_turn).
  __device__ void write_turn(int stage, int tile, int turn) const {
    asm volatile("st.shared.v2.s32 [%0], {%1, %2};" ::"r"(info(stage) + 8), "r"(tile), "r"(turn) : "memory");
  }

  // By all threads of the block, before anything else.
  __device__ void init() const {
    if (threadIdx.x == 0) {
      constexpr int kReaders = (kOwners + 1) * kWarps;
      for (int i = 0; i < kStages; ++i) mbarrier_init(full(i), 1 + 32), mbarrier_init(free(i), kReaders);
      for (int i = 0; i < kOwnStages; ++i)
        mbarrier_init(own_full(i), 1), mbarrier_init(own_free(i), kReaders);
      for (int i = 0; i < kOwners * kBuffers; ++i)
        mbarrier_init(ds_full(0, i), kWarps), mbarrier_init(ds_free(0, i), kWarps);
      for (int i = 0; i < kBuffers; ++i) mbarrier_init(dq_full(i), kWarps), mbarrier_init(dq_free(i), 1);
      fence_proxy_async();
    }
    __syncthreads();
  }
};

// What the kernel needs in global memory besides the tensors: of each row less_lse() and delta times
// kProbabilityUnit (fragments.cuh); of each query tile dQ, in the order of the lanes that hold it, and how
// many work items have added to it.
struct FusedScratch {
  float2* scalars = nullptr;      // (B, H, T)
  float* dq = nullptr;            // (B, H, tiles, kTile * 64)
  std::int32_t* turns = nullptr;  // (B, H, tiles)
  int tiles = 0;

  __device__ __forceinline__ float* dq_of(int tile) const {
    return dq + static_cast<std::int64_t>(tile) * (kTile * 64);
  }
  // Until earlier work items have added their parts.
  __device__ __forceinline__ void wait_for_turn(QueryPlace place) const {
    for (int turn = -1; turn != place.turn;)
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(turn) : "l"(turns + place.tile) : "memory");
  }
  static FusedScratch of(const AttentionBackward& g, const AttentionPass& pass) {
    const std::int64_t pairs = g.q.batch * g.q.heads;
    FusedScratch s;
    s.tiles = pass.query_tiles;
    s.dq = static_cast<float*>(g.scratch.data);
    s.scalars = reinterpret_cast<float2*>(s.dq + pairs * s.tiles * kTile * 64);
    s.turns = reinterpret_cast<std::int32_t*>(s.scalars + pairs * g.q.time);
    return s;
  }
};

}  // namespace weft::attention::hopper
