// SPDX-License-Identifier: MIT
// How tiles reach the warpgroups of a persistent Hopper kernel over a TileMap. A work item is
// kOwners tiles that follow each other in the schedule, one for each consumer warpgroup. They come
// through a ring of kOwnStages buffers, so that the next work item begins while the last one ends.
// The tiles of the other side stream through a ring of kStages. The first warpgroup fills both
// (producer.cuh).
//   x, y   the two matrices of a tile: queries and dy, or keys and values
#pragma once

#include "kernels/attention/direction.cuh"
#include "kernels/device/pipeline.cuh"
#include "kernels/device/warp_roles.cuh"
#include "kernels/device/wgmma.cuh"

namespace weft::attention::hopper {
// What the producer tells the consumers of a work item.
template <int kOwners>
struct WorkItem {
  int tile[kOwners];  // -1: none
  int b, h;
  bool empty, accumulate;  // empty: nothing is attended, there are no iterations
  bool end;                // there are no more work items, and this is none
  const int32_t* own_order;
  const uint64_t* masks;
};

// Shared memory. kOwnsY: stationary tiles have a y, too. kScalars: streamed rows have lse and
// delta.
template <int kOwners_, int Dqk, int Dv, bool kOwnsY_, bool kScalars_, int kStages_,
          int kOwnStages_, bool kTma_>
struct Memory {
  static constexpr int kOwners = kOwners_, kStages = kStages_, kOwnStages = kOwnStages_;
  static constexpr bool kOwnsY = kOwnsY_, kScalars = kScalars_, kTma = kTma_;
  static constexpr int kProducingWarps = 3;
  static constexpr bool kFused = false;  // one kernel for all three gradients: fused.cu
  static constexpr int kXPanels = Dqk / 64, kYPanels = Dv / 64;
  static constexpr int kWarps = kWarpgroup / 32, kThreads = (1 + kOwners) * kWarpgroup;

  struct Tile {
    Panel x[kXPanels], y[kYPanels];
  };

  struct Own {
    Panel x[kXPanels], y[kOwnsY ? kYPanels : 0];
  };

  // lse of two rows, then their delta.
  struct Scalars {
    float lse[2], delta[2];
  };

  Tile stages[kStages];
  Own own[kOwnStages][kOwners];
  Scalars scalars[kStages][kScalars ? kTile / 2 : 0];
  alignas(16) int info[kStages][4];  // what write_info() writes for each owner
  alignas(16) WorkItem<kOwners> work[kOwnStages];
  Pipeline<kStages> pipeline;         // of stages
  Pipeline<kOwnStages> own_pipeline;  // of work items and their stationary tiles

  // By all threads of the block, before anything else.
  __device__ void init() {
    if (threadIdx.x == 0) {
      // A thread of the producer, for itself and TMA; each lane whose cp.async fills the stage.
      constexpr int kLanes = kScalars || !kTma ? 32 : 0,
                    kOwnLanes = kTma ? 0 : 32 * kProducingWarps, kReaders = kOwners * kWarps;
      pipeline.init(1 + kLanes, kReaders);
      own_pipeline.init(1 + kOwnLanes, kReaders);
      fence_proxy_async();
    }
    __syncthreads();
  }
};

// The persistent tile scheduler. Pairs (batch, head) are worked on `together` at a time, see
// pairs_together(). Work items of a group are numbered (rank, pair), pair fastest; rank 0 has the
// longest lists. So that no block gets the longest of every round, blocks take the items of a
// single group back and forth, and of several groups every second one begins with its shortest
// lists, the last with its longest. in_rank_order: items wait for lower ranks of their pair, so
// blocks take all groups by rising ranks, back and forth.
class TileScheduler {
 public:
  __device__ TileScheduler(const HeadsView& x, int tiles, int owners, int together,
                           bool in_rank_order = false)
      : heads_(static_cast<unsigned>(x.heads)),
        pairs_(static_cast<unsigned>(x.batch) * heads_),
        ranks_(static_cast<unsigned>((tiles + owners - 1) / owners)),
        together_(static_cast<unsigned>(together)),
        in_rank_order_(in_rank_order) {}

  struct Place {
    int rank, b, h;
  };

  // Goes to the work item of a round; false: this thread block has none there.
  __device__ __forceinline__ bool go_to(unsigned round) {
    const bool back = is_rising() && round % 2;
    item_ = round * gridDim.x + (back ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    return item_ < count();
  }

  __device__ __forceinline__ unsigned rounds() const {
    return (count() + gridDim.x - 1) / gridDim.x;
  }

  __device__ __forceinline__ bool next() {
    do {
      if (static_cast<uint64_t>(round_) * gridDim.x >= count()) return false;
    } while (!go_to(round_++));
    return true;
  }

  __device__ __forceinline__ Place place() const {
    const unsigned group = item_ / (together_ * ranks_), at = item_ % (together_ * ranks_),
                   pair = group * together_ + at % together_, place = at / together_,
                   rank = is_rising() || group % 2 ? place : ranks_ - 1 - place;
    return {static_cast<int>(rank), static_cast<int>(pair / heads_),
            static_cast<int>(pair % heads_)};
  }

 private:
  __device__ __forceinline__ unsigned count() const { return pairs_ * ranks_; }

  __device__ __forceinline__ bool is_rising() const {
    return in_rank_order_ || together_ == pairs_;
  }

  unsigned heads_, pairs_, ranks_, together_, item_ = 0, round_ = 0;
  bool in_rank_order_;
};

// What a consumer is told of a stage: its mask index, and whether it is the last of the work item.
__device__ __forceinline__ void write_info(SharedAddress to, int mask, bool last) {
  st_shared_int(to, mask << 1 | static_cast<int>(last));
}

// A mask index that is neither kSkip nor kEnd.
__device__ __forceinline__ bool is_tile(int mask) {
  return static_cast<int>(static_cast<unsigned>(mask) + 1) >= 0;
}

// A consumer warpgroup's view of the rings.
template <class M>
class Consumer {
 public:
  __device__ explicit Consumer(M& memory)
      : memory_(memory),
        own_(warp_uniform(threadIdx.x / kWarpgroup - 1)) {}

  __device__ __forceinline__ const WorkItem<M::kOwners>& take_work() {
    memory_.own_pipeline.wait(own_stage_);
    const WorkItem<M::kOwners>& work = memory_.work[own_stage_.stage];
    ended_ = warp_uniform(work.empty);
    fence_gathered();
    return work;
  }

  // The stationary tile of this warpgroup.
  __device__ auto& own_tile() const { return memory_.own[own_stage_.stage][own_]; }

  // The work item and its stationary tiles are not read any more.
  __device__ __forceinline__ void release_work() {
    memory_.own_pipeline.release(own_stage_.stage);
    own_stage_.advance();
  }

  // Waits for the next iteration: its mask index, kSkip if this warpgroup has no tile there, or
  // kEnd at the end of the work item. At most two stages may be held meanwhile: the producer needs
  // a third.
  __device__ __forceinline__ int step() {
    if (ended_) return kEnd;
    await_step(false);
    const int info = look_at_step();
    ended_ = info & 1;
    const int mask = info >> 1;
    stage_.advance();
    if (mask == kSkip)
      release(stage());
    else
      fence_gathered();
    return mask;
  }

  // Parts of step(); callers release skipped stages. Whether the next stage is full, without
  // waiting.
  __device__ __forceinline__ bool has_step() const {
    return memory_.pipeline.full[stage_.stage].test(stage_.parity);
  }

  // Waits for it, unless has_step() said yes or the work item has ended.
  __device__ __forceinline__ void await_step(bool has) const {
    if (!has && !ended_) memory_.pipeline.wait(stage_);
  }

  // The stage's info word; undefined after the last stage.
  __device__ __forceinline__ int look_at_step() const {
    return warp_uniform(ld_shared_int(shared_address(&memory_.info[stage_.stage][own_])));
  }

  // Goes to it; without branches.
  __device__ __forceinline__ int take_step(int info) {
    PipelineState<M::kStages> next = stage_;
    next.advance();
    stage_.stage = ended_ ? stage_.stage : next.stage;
    stage_.parity = ended_ ? stage_.parity : next.parity;
    const int mask = ended_ ? kEnd : info >> 1;
    ended_ |= info & 1;
    if (mask != kSkip) fence_gathered();
    return mask;
  }

  __device__ __forceinline__ int next() {
    int mask = kSkip;
    while (mask == kSkip) mask = step();
    return mask;
  }

  // Of the last iteration; of the one before. Computed anew from the ring's position, which the
  // compiler knows to be the same in all lanes: descriptors stay in uniform registers.
  __device__ __forceinline__ int stage() const { return stage_.stage_back(1); }

  __device__ __forceinline__ int stage_before() const { return stage_.stage_back(2); }

  // Of the last iteration that had a tile, after one that had none.
  __device__ __forceinline__ int last_tile(int mask) const {
    return stage_.stage_back(mask == kSkip ? 2 : 1);
  }

  __device__ __forceinline__ void release(int stage) { memory_.pipeline.release(stage); }

  __device__ int own() const { return own_; }

 private:
  // What TMA wrote is visible to wgmma already.
  __device__ __forceinline__ static void fence_gathered() {
    if constexpr (!M::kTma) fence_proxy_async();
  }

  M& memory_;
  PipelineState<M::kStages> stage_;
  PipelineState<M::kOwnStages> own_stage_;
  int own_, ended_ = 0;
};

// Position of this thread's rows of the stationary tile, -1: empty.
template <int kOwners>
__device__ __forceinline__ int position_of(const WorkItem<kOwners>& work, int own, int half) {
  const int tile = work.tile[own];
  return tile < 0 ? -1 : __ldg(work.own_order + static_cast<int64_t>(tile) * kTile + row_of(half));
}
}  // namespace weft::attention::hopper
