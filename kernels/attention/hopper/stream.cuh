// SPDX-License-Identifier: MIT
// How tiles reach the warpgroups of a Hopper block. A block stays on its multiprocessor and takes one task
// after the other: kOwners tiles that follow each other in the schedule, one for each consumer warpgroup.
// Rows of the other side come through a ring of stages, owned rows through a ring of slots, so that the next
// task begins while the last one ends. The first warpgroup fills both (gather_producer.cuh).
#pragma once

#include "kernels/attention/direction.cuh"
#include "kernels/device/wgmma.cuh"

namespace weft::attention::hopper {

// What the producer tells the consumers of a task.
template <int kOwners>
struct WorkItem {
  int tile[kOwners];  // -1: none
  int b, h;
  bool empty, accumulate;  // empty: nothing is attended, there are no steps
  bool end;                // this is no task: there are no more
  const std::int32_t* own_order;
  const std::uint64_t* masks;
};

// Shared memory of a block. Matrices are in units of panels: x of Dqk columns, y of Dv. kOwnsY: owned tiles
// have a y, too; kScalars: rows of the stream have two numbers each.
template <int kOwners_, int Dqk, int Dv, bool kOwnsY_, bool kScalars_, int kStages_, int kSlots_, bool kTma_>
struct Memory {
  static constexpr int kOwners = kOwners_, kStages = kStages_, kSlots = kSlots_;
  static constexpr bool kOwnsY = kOwnsY_, kScalars = kScalars_, kTma = kTma_;
  static constexpr int kProducingWarps = 3;  // where they use the copy engine: stages are 6, mostly
  static constexpr bool kFused = false;      // dQ is summed on the way: fused.cuh
  static constexpr int kXPanels = Dqk / 64, kYPanels = Dv / 64, kX = kXPanels * kPanel,
                       kY = kYPanels * kPanel;
  static constexpr int kThreads = (1 + kOwners) * kWarpgroup;
  static constexpr int kStage = kX + kY, kOwner = kX + (kOwnsY ? kY : 0), kSlot = kOwners * kOwner;
  static constexpr int kOwned = kStages * kStage, kNumbers = kOwned + kSlots * kSlot,
                       kScalarsOfStage = kScalars ? 2 * kTile * 4 : 0,
                       kInfos = kNumbers + kStages * kScalarsOfStage, kWorks = kInfos + kStages * 16,
                       kWork = (sizeof(WorkItem<kOwners>) + 15) / 16 * 16,
                       kBarriers = kWorks + kSlots * kWork, kEnd = kBarriers + 2 * (kStages + kSlots) * 8,
                       kBytes = kEnd + 1024;  // the first panel is moved up to a multiple of 1024

  std::uint32_t base;

  __device__ static Memory of(const char* shared) { return {first_panel(shared)}; }
  __device__ std::uint32_t x(int stage) const { return base + stage * kStage; }
  __device__ std::uint32_t y(int stage) const { return x(stage) + kX; }
  __device__ std::uint32_t own_x(int slot, int owner) const {
    return base + kOwned + slot * kSlot + owner * kOwner;
  }
  __device__ std::uint32_t own_y(int slot, int owner) const { return own_x(slot, owner) + kX; }
  __device__ std::uint32_t numbers(int stage) const { return base + kNumbers + stage * kScalarsOfStage; }
  // Of row `row`: lse; delta 8 bytes on. Two rows share 16 bytes.
  __device__ std::uint32_t number(int stage, int row) const {
    return numbers(stage) + row / 2 * 16 + row % 2 * 4;
  }
  __device__ std::uint32_t info(int stage) const { return base + kInfos + stage * 16; }
  __device__ WorkItem<kOwners>& work(char* shared, int slot) const {
    return *reinterpret_cast<WorkItem<kOwners>*>(shared + (base - shared_address(shared)) + kWorks +
                                                 slot * kWork);
  }
  __device__ std::uint32_t full(int stage) const { return base + kBarriers + stage * 8; }
  __device__ std::uint32_t free(int stage) const { return full(kStages + stage); }
  __device__ std::uint32_t slot_full(int slot) const { return full(2 * kStages + slot); }
  __device__ std::uint32_t slot_free(int slot) const { return full(2 * kStages + kSlots + slot); }

  // By all threads of the block, before anything else. Fillings are announced by one thread of the producer
  // for what it wrote itself and for the copy engine, and by each thread whose copies are its own; emptyings
  // by each warp of the consumers.
  __device__ void init() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i)
        mbarrier_init(full(i), 1 + (!kTma      ? kWarpgroup
                                    : kScalars ? 32
                                               : 0)),
            mbarrier_init(free(i), kOwners * kWarpgroup / 32);
      for (int i = 0; i < kSlots; ++i)
        mbarrier_init(slot_full(i), 1 + (!kTma ? kWarpgroup : 0)),
            mbarrier_init(slot_free(i), kOwners * kWarpgroup / 32);
      fence_proxy_async();
    }
    __syncthreads();
  }
};

// Places in a ring, and the parity of the round.
template <int kSize>
struct Ring {
  int at = 0, parity = 0;
  __device__ __forceinline__ void advance() {
    if (++at == kSize) at = 0, parity ^= 1;
  }
  // The place `n` steps ago.
  __device__ __forceinline__ int back(int n) const { return at < n ? at - n + kSize : at - n; }
};

// TileScheduler are numbered (rank, batch, head), head fastest, those of rank 0 are the longest. Blocks take
// them back and forth, so that none gets the longest of every round.
class TileScheduler {
 public:
  __device__ TileScheduler(const HeadsView& x, int tiles, int owners)
      : heads_(static_cast<unsigned>(x.heads)),
        pairs_(static_cast<unsigned>(x.batch) * heads_),
        count_(pairs_ * static_cast<unsigned>((tiles + owners - 1) / owners)) {}
  // Goes to the task of a round; false: this block has none there.
  __device__ __forceinline__ bool go_to(unsigned round) {
    task_ = round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    return task_ < count_;
  }
  __device__ __forceinline__ unsigned rounds() const { return (count_ + gridDim.x - 1) / gridDim.x; }
  __device__ __forceinline__ bool next() {
    do {
      if (static_cast<std::uint64_t>(round_) * gridDim.x >= count_) return false;
    } while (!go_to(round_++));
    return true;
  }
  __device__ int rank() const { return static_cast<int>(task_ / pairs_); }
  __device__ int batch() const { return static_cast<int>(task_ % pairs_ / heads_); }
  __device__ int head() const { return static_cast<int>(task_ % heads_); }

 private:
  unsigned heads_, pairs_, count_, task_ = 0, round_ = 0;
};

// What a consumer is told of a stage: the mask of its tile, and whether the step is the last of the task.
__device__ __forceinline__ void write_info(std::uint32_t to, int mask, bool last) {
  asm volatile("st.shared.s32 [%0], %1;" ::"r"(to), "r"(mask << 1 | static_cast<int>(last)) : "memory");
}

// A mask number that is neither kSkip nor kEnd.
__device__ __forceinline__ bool is_tile(int mask) {
  return static_cast<int>(static_cast<unsigned>(mask) + 1) >= 0;
}

// A consumer warpgroup's view of the rings.
template <class M>
class Consumer {
 public:
  __device__ Consumer(const M& memory, char* shared)
      : memory_(memory), shared_(shared), own_(warp_uniform(threadIdx.x / kWarpgroup - 1)) {}

  // Waits for the next task.
  __device__ __forceinline__ const WorkItem<M::kOwners>& take_work() {
    mbarrier_wait(memory_.slot_full(slot_.at), slot_.parity);
    const WorkItem<M::kOwners>& work = memory_.work(shared_, slot_.at);
    ended_ = warp_uniform(work.empty);
    show();
    return work;
  }
  __device__ std::uint32_t own_x() const { return memory_.own_x(slot_.at, own_); }
  __device__ std::uint32_t own_y() const { return memory_.own_y(slot_.at, own_); }
  // The task and its own tiles are not read any more.
  __device__ __forceinline__ void release_work() {
    mbarrier_arrive_warp(memory_.slot_free(slot_.at));
    slot_.advance();
  }

  // Waits for the next step: its mask, kSkip if this warpgroup has no tile there, or kEnd at the end of the
  // task. At most two stages may be held meanwhile: the producer needs a third.
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
      show();
    return mask;
  }
  // The parts of step(), for who has work between them; a stage that is skipped is theirs to release. Whether
  // the next step is there, without waiting.
  __device__ __forceinline__ bool has_step() const {
    return mbarrier_test_wait(memory_.full(stage_.at), stage_.parity);
  }
  // Waits for it, unless has_step() said yes or the task has ended.
  __device__ __forceinline__ void await_step(bool has) const {
    if (!has && !ended_) mbarrier_wait(memory_.full(stage_.at), stage_.parity);
  }
  // What the producer says of it; anything where the task has ended.
  __device__ __forceinline__ int look_at_step() const {
    int info;
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(info) : "r"(memory_.info(stage_.at) + own_ * 4));
    return warp_uniform(info);
  }
  // Goes to it; without branches.
  __device__ __forceinline__ int take_step(int info) {
    Ring<M::kStages> next = stage_;
    next.advance();
    stage_.at = ended_ ? stage_.at : next.at;
    stage_.parity = ended_ ? stage_.parity : next.parity;
    const int mask = ended_ ? kEnd : info >> 1;
    ended_ |= info & 1;
    if (mask != kSkip) show();
    return mask;
  }
  // The same without kSkip.
  __device__ __forceinline__ int next() {
    int mask = kSkip;
    while (mask == kSkip) mask = step();
    return mask;
  }
  // Of the last step; of the one before. They are not kept from step to step but computed from the ring's
  // place, which the compiler then knows to be the same in all lanes: descriptors stay in uniform registers.
  __device__ __forceinline__ int stage() const { return stage_.back(1); }
  __device__ __forceinline__ int stage_before() const { return stage_.back(2); }
  // Of the last step that was a tile, after one that was not.
  __device__ __forceinline__ int last_tile(int mask) const { return stage_.back(mask == kSkip ? 2 : 1); }
  __device__ __forceinline__ void release(int stage) { mbarrier_arrive_warp(memory_.free(stage)); }
  __device__ int own() const { return own_; }

 private:
  // What the copy engine wrote is visible to products already.
  __device__ __forceinline__ static void show() {
    if constexpr (!M::kTma) fence_proxy_async();
  }

  const M& memory_;
  char* shared_;
  Ring<M::kStages> stage_;
  Ring<M::kSlots> slot_;
  int own_, ended_ = 0;
};

}  // namespace weft::attention::hopper
