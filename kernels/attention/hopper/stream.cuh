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
#include "kernels/device/wgmma.cuh"

#include <cstddef>

namespace weft::attention::hopper {
using Panel = char[kPanel];

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
  static constexpr bool kFused = false;  // one kernel for all three gradients: fused.cuh
  static constexpr int kXPanels = Dqk / 64, kYPanels = Dv / 64, kX = kXPanels * kPanel,
                       kY = kYPanels * kPanel;
  static constexpr int kThreads = (1 + kOwners) * kWarpgroup;

  static constexpr int kWorkItem = (sizeof(WorkItem<kOwners>) + 15) / 16 * 16;  // bytes

  struct Own {
    Panel x[kXPanels], y[kOwnsY ? kYPanels : 0];
  };

  struct SharedStorage {
    struct {
      Panel x[kXPanels], y[kYPanels];
    } stages[kStages];

    Own own[kOwnStages][kOwners];
    float scalars[kStages][kScalars ? 2 * kTile : 0];
    int info[kStages][4];  // write_info()
    char work[kOwnStages][kWorkItem];
    uint64_t full[kStages], empty[kStages], own_full[kOwnStages], own_empty[kOwnStages];
  };

  static constexpr int kStage = kX + kY, kOwnTiles = sizeof(Own) * kOwners,
                       kBytes = sizeof(SharedStorage) + kPanelAlignment;

  uint32_t base;

  __device__ static Memory of(const char* shared) { return {first_panel(shared)}; }

  __device__ uint32_t x(int stage) const { return base + stage * kStage; }

  __device__ uint32_t y(int stage) const { return x(stage) + kX; }

  __device__ uint32_t own_x(int own_stage, int owner) const {
    return WEFT_AT(own) + own_stage * kOwnTiles + owner * int{sizeof(Own)};
  }

  __device__ uint32_t own_y(int own_stage, int owner) const { return own_x(own_stage, owner) + kX; }

  __device__ uint32_t scalars(int stage) const {
    return WEFT_AT(scalars) + stage * (kScalars ? 2 * kTile * 4 : 0);
  }

  // lse of a row; delta 8 bytes on. Two rows share 16 bytes.
  __device__ uint32_t scalar(int stage, int row) const {
    return scalars(stage) + row / 2 * 16 + row % 2 * 4;
  }

  __device__ uint32_t info(int stage) const { return WEFT_AT(info) + stage * 16; }

  __device__ WorkItem<kOwners>& work(char* shared, int own_stage) const {
    char* const first =
        shared + (base - shared_address(shared)) + int{offsetof(SharedStorage, work)};
    return *reinterpret_cast<WorkItem<kOwners>*>(first + own_stage * kWorkItem);
  }

  __device__ uint32_t full(int stage) const { return WEFT_AT(full) + stage * 8; }

  __device__ uint32_t empty(int stage) const { return full(kStages + stage); }

  __device__ uint32_t own_full(int own_stage) const { return full(2 * kStages + own_stage); }

  __device__ uint32_t own_empty(int own_stage) const { return own_full(kOwnStages + own_stage); }

  // By all threads of the block, before anything else. A buffer is full once one thread of the
  // producer, TMA and each thread whose cp.async fills it have arrived, and free once each warp of
  // the consumers has.
  __device__ void init() const {
    if (threadIdx.x == 0) {
      const int of_stage = kScalars || !kTma ? 32 : 0, of_own = kTma ? 0 : 32 * kProducingWarps;
      for (int i = 0; i < kStages; ++i)
        mbarrier_init(full(i), 1 + of_stage), mbarrier_init(empty(i), kOwners * kWarpgroup / 32);
      for (int i = 0; i < kOwnStages; ++i)
        mbarrier_init(own_full(i), 1 + of_own),
            mbarrier_init(own_empty(i), kOwners * kWarpgroup / 32);
      fence_proxy_async();
    }
    __syncthreads();
  }
};

// The persistent tile scheduler. Work items are numbered (rank, batch, head), head fastest; rank 0
// has the longest lists. Blocks take them back and forth, so that none gets the longest of every
// round.
class TileScheduler {
 public:
  __device__ TileScheduler(const HeadsView& x, int tiles, int owners)
      : heads_(static_cast<unsigned>(x.heads)),
        pairs_(static_cast<unsigned>(x.batch) * heads_),
        count_(pairs_ * static_cast<unsigned>((tiles + owners - 1) / owners)) {}

  // Goes to the work item of a round; false: this thread block has none there.
  __device__ __forceinline__ bool go_to(unsigned round) {
    item_ = round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    return item_ < count_;
  }

  __device__ __forceinline__ unsigned rounds() const {
    return (count_ + gridDim.x - 1) / gridDim.x;
  }

  __device__ __forceinline__ bool next() {
    do {
      if (static_cast<uint64_t>(round_) * gridDim.x >= count_) return false;
    } while (!go_to(round_++));
    return true;
  }

  __device__ int rank() const { return static_cast<int>(item_ / pairs_); }

  __device__ int batch() const { return static_cast<int>(item_ % pairs_ / heads_); }

  __device__ int head() const { return static_cast<int>(item_ % heads_); }

 private:
  unsigned heads_, pairs_, count_, item_ = 0, round_ = 0;
};

// What a consumer is told of a stage: its mask index, and whether it is the last of the work item.
__device__ __forceinline__ void write_info(uint32_t to, int mask, bool last) {
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
  __device__ Consumer(const M& memory, char* shared)
      : memory_(memory),
        shared_(shared),
        own_(warp_uniform(threadIdx.x / kWarpgroup - 1)) {}

  __device__ __forceinline__ const WorkItem<M::kOwners>& take_work() {
    mbarrier_wait(memory_.own_full(own_stage_.stage), own_stage_.parity);
    const WorkItem<M::kOwners>& work = memory_.work(shared_, own_stage_.stage);
    ended_ = warp_uniform(work.empty);
    fence_gathered();
    return work;
  }

  __device__ uint32_t own_x() const { return memory_.own_x(own_stage_.stage, own_); }

  __device__ uint32_t own_y() const { return memory_.own_y(own_stage_.stage, own_); }

  // The work item and its stationary tiles are not read any more.
  __device__ __forceinline__ void release_work() {
    mbarrier_arrive_warp(memory_.own_empty(own_stage_.stage));
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
    return mbarrier_test_wait(memory_.full(stage_.stage), stage_.parity);
  }

  // Waits for it, unless has_step() said yes or the work item has ended.
  __device__ __forceinline__ void await_step(bool has) const {
    if (!has && !ended_) mbarrier_wait(memory_.full(stage_.stage), stage_.parity);
  }

  // The stage's info word; undefined after the last stage.
  __device__ __forceinline__ int look_at_step() const {
    return warp_uniform(ld_shared_int(memory_.info(stage_.stage) + own_ * 4));
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

  __device__ __forceinline__ void release(int stage) { mbarrier_arrive_warp(memory_.empty(stage)); }

  __device__ int own() const { return own_; }

 private:
  // What TMA wrote is visible to wgmma already.
  __device__ __forceinline__ static void fence_gathered() {
    if constexpr (!M::kTma) fence_proxy_async();
  }

  const M& memory_;
  char* shared_;
  PipelineState<M::kStages> stage_;
  PipelineState<M::kOwnStages> own_stage_;
  int own_, ended_ = 0;
};
}  // namespace weft::attention::hopper
