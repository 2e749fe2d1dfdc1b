// SPDX-License-Identifier: MIT
// dQ in the backward walk over columns: a warpgroup sums it over the keys of a task, threads add that to what
// the tasks before left in global memory, and a kernel rounds the sums to the type of the gradients.
#pragma once

#include "kernels/attention_hopper_fused_memory.cuh"
#include "kernels/attention_hopper_rows.cuh"

namespace weft::attention::hopper {

template <class T>
class QuerySums {
 public:
  __device__ QuerySums(const FusedMemory& memory, char* shared, int heads, int tiles)
      : memory_(memory), shared_(shared), heads_(heads), tiles_(tiles) {}

  __device__ __forceinline__ void run() {
    for (;;) {
      wait_for_phase(memory_.slot_full(slot_.at), slot_.parity);
      const auto& work = memory_.work(shared_, slot_.at);
      if (same_in_warp(work.end)) break;
      const int first = same_in_warp((work.b * heads_ + work.h) * tiles_);
      for (bool more = !same_in_warp(work.empty); more;) more = step(first);
      arrive_of_warp(memory_.slot_free(slot_.at));
      slot_.advance();
    }
    for (int i = 0; i < FusedMemory::kBuffers; ++i) open(), close({-1, 0});
  }

 private:
  // A tile of queries; false: it was the last of the task.
  __device__ __forceinline__ bool step(int first) {
    wait_for_phase(memory_.full(stage_.at), stage_.parity);
    int info[2];
    QueryPlace place;
    asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(info[0]), "=r"(info[1]), "=r"(place.tile), "=r"(place.turn)
                 : "r"(memory_.info(stage_.at)));
    info[0] = same_in_warp(info[0]), info[1] = same_in_warp(info[1]);
    arrive_of_warp(memory_.free(stage_.at));
    stage_.advance();
    const bool has[2] = {info[0] >> 1 != kSkip, info[1] >> 1 != kSkip};
    if (has[0]) wait_for_phase(memory_.scores_full(0, ds_[0].at), ds_[0].parity);
    if (has[1]) wait_for_phase(memory_.scores_full(1, ds_[1].at), ds_[1].parity);
    float dq[32];
    if (has[0] && has[1])
      sum<0, 1>(dq);
    else
      has[0] ? sum<0, 0>(dq) : sum<1, 1>(dq);
    if (has[0]) release(0);
    if (has[1]) release(1);
    open();
#pragma unroll
    for (int i = 0; i < 8; ++i)
      asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(
                       memory_.sums(out_.at) + (i * kWarpgroup + threadIdx.x % kWarpgroup) * 16),
                   "f"(dq[4 * i]), "f"(dq[4 * i + 1]), "f"(dq[4 * i + 2]), "f"(dq[4 * i + 3])
                   : "memory");
    close({first + place.tile, place.turn});
    return !(info[0] & 1);
  }
  // dQ over the keys of the owners kFirst .. kLast.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void sum(float (&dq)[32]) const {
    pin(dq);
    begin_products();
#pragma unroll
    for (int owner = kFirst; owner <= kLast; ++owner) {
      const Descriptor ds = descriptor(memory_.scores(owner, ds_[owner].at)),
                       k = descriptor(memory_.own_x(slot_.at, owner));
#pragma unroll
      for (int i = 0; i < kTile / 16; ++i)
        wgmma_of_rows<T>(dq, ds + i * kRowStep, k + i * kRowStep, owner > kFirst || i > 0);
    }
    commit_products();
    wait_for_products<0>();
    pin(dq);
  }
  __device__ __forceinline__ void release(int owner) {
    arrive_of_warp(memory_.scores_free(owner, ds_[owner].at));
    ds_[owner].advance();
  }
  // A buffer for sums, from when it is free to when it is full.
  __device__ __forceinline__ void open() { wait_for_phase(memory_.sums_free(out_.at), out_.parity ^ 1); }
  __device__ __forceinline__ void close(QueryPlace place) {
    if (threadIdx.x % kWarpgroup == 0)
      asm volatile("st.shared.v2.s32 [%0], {%1, %2};" ::"r"(memory_.place(out_.at)), "r"(place.tile),
                   "r"(place.turn)
                   : "memory");
    show_to_products();  // and to the copy engine
    arrive_of_warp(memory_.sums_full(out_.at));
    out_.advance();
  }

  const FusedMemory& memory_;
  char* shared_;
  int heads_, tiles_;
  Ring<FusedMemory::kStages> stage_;
  Ring<FusedMemory::kSlots> slot_;
  Ring<FusedMemory::kBuffers> ds_[2], out_;
};

// One thread for each buffer of sums.
class TurnTaker {
 public:
  __device__ TurnTaker(const FusedMemory& memory, const FusedScratch& scratch, int buffer)
      : memory_(memory), scratch_(scratch), buffer_(buffer) {}

  __device__ __forceinline__ void run() {
    for (int parity = 0;; parity ^= 1) {
      wait_for_phase(memory_.sums_full(buffer_), parity);
      QueryPlace place;
      asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];"
                   : "=r"(place.tile), "=r"(place.turn)
                   : "r"(memory_.place(buffer_)));
      if (place.tile < 0) break;
      while (turn_of(place.tile) != place.turn) {}
      send(place);
      arrive(memory_.sums_free(buffer_));
      finish(place);
    }
  }

 private:
  __device__ __forceinline__ int turn_of(int tile) const {
    int turn;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(turn) : "l"(scratch_.turns + tile) : "memory");
    return turn;
  }
  // Returns when shared memory has been read.
  __device__ __forceinline__ void send(QueryPlace place) const {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    float* to = scratch_.sums + static_cast<std::int64_t>(place.tile) * (kTile * 64);
    const std::uint32_t from = memory_.sums(buffer_);
    asm volatile("fence.proxy.async;" ::: "memory");
    if (place.turn == 0)
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                   "n"(FusedMemory::kSums)
                   : "memory");
    else
      asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
                   "r"(from), "n"(FusedMemory::kSums)
                   : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
  }
  // Once the sums are there it is the next task's turn.
  __device__ __forceinline__ void finish(QueryPlace place) const {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(scratch_.turns + place.tile), "r"(place.turn + 1)
                 : "memory");
#endif
  }

  const FusedMemory& memory_;
  const FusedScratch& scratch_;
  int buffer_;
};

// ---- before and after ----

// Numbers of rows, eight lanes for each; no task has added to any dQ yet.
inline constexpr int kRowLanes = 8, kRowThreads = 256;
template <class T>
__global__ void __launch_bounds__(kRowThreads)
    begin_fused_kernel(const __grid_constant__ AttentionBackward g,
                       const __grid_constant__ FusedScratch scratch) {
  const std::int64_t row = (std::int64_t{blockIdx.x} * kRowThreads + threadIdx.x) / kRowLanes,
                     heads = g.q.heads, time = g.q.time;
  const unsigned chunk = threadIdx.x % kRowLanes;
  const bool inside = row < g.q.batch * time * heads;
  const std::int64_t h = row % heads, t = row / heads % time, b = row / heads / time;
  float sum = 0;
  if (inside) {
    const Rows y = Rows::of(g.y, b, h), dy = Rows::of(g.dy, b, h);
    if (chunk < y.chunks)
      sum = dot<T>(__ldg(reinterpret_cast<const uint4*>(y.at(static_cast<int>(t), chunk))),
                   __ldg(reinterpret_cast<const uint4*>(dy.at(static_cast<int>(t), chunk))));
  }
#pragma unroll
  for (int lanes = kRowLanes / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
  if (chunk != 0) return;
  if (row < g.q.batch * heads * scratch.tiles) scratch.turns[row] = 0;
  if (!inside) return;
  const std::int64_t at = (b * heads + h) * time + t;
  scratch.numbers[at] = {static_cast<const float*>(g.lse.data)[at] * -kLog2E, sum};
}

// dQ from its sums: a block takes a tile of queries.
template <class T>
__global__ void __launch_bounds__(kWarpgroup)
    end_fused_kernel(const __grid_constant__ AttentionBackward g, const __grid_constant__ AttentionPass pass,
                     const __grid_constant__ FusedScratch scratch) {
  const int tile = blockIdx.x % scratch.tiles, pair = blockIdx.x / scratch.tiles,
            heads = static_cast<int>(g.q.heads), h = pair % heads, b = pair / heads;
  const TileMap& map = pass.maps[g.maps.group_of_head[h]];
  if (tile >= map.query_tiles) return;
  float dq[32] = {};
  if (scratch.turns[blockIdx.x] > 0) {
    const auto* sums = reinterpret_cast<const float4*>(scratch.sums) +
                       static_cast<std::int64_t>(blockIdx.x) * (kTile * 64 / 4) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 x = sums[i * kWarpgroup];
      dq[4 * i] = x.x, dq[4 * i + 1] = x.y, dq[4 * i + 2] = x.z, dq[4 * i + 3] = x.w;
    }
  }
  const Rows out = Rows::of(g.dq, b, h);
  const auto scale = static_cast<float>(g.scale);
  const std::int32_t* order = map.query_order + static_cast<std::int64_t>(tile) * kTile;
  store_row<T, 0>(dq, scale, false, 1.0f, order[row_of(0)], out);
  store_row<T, 1>(dq, scale, false, 1.0f, order[row_of(1)], out);
}

}  // namespace weft::attention::hopper
