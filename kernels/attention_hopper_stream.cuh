// SPDX-License-Identifier: MIT
// How tiles reach the warpgroups of a Hopper block. A block stays on its multiprocessor and takes one task
// after the other: kOwners tiles that follow each other in the schedule, one for each consumer warpgroup. The
// first warpgroup, the producer, runs ahead: it merges the lists of the owned tiles, gathers the rows of the
// other side in slot order into a ring of stages, and the owned rows into a ring of slots, so that the next
// task begins while the last one ends.
#pragma once

#include "kernels/attention_fragments.cuh"
#include "kernels/attention_hopper_wgmma.cuh"

namespace weft::attention::hopper {

// What the producer tells the consumers of a task.
template <int kOwners>
struct Work {
  int tile[kOwners];  // -1: none
  int b, h;
  bool empty, accumulate;  // empty: nothing is attended, there are no steps
  const std::int32_t* own_order;
  const std::uint64_t* masks;
};

// Shared memory of a block. Matrices are in units of panels: x of Dqk columns, y of Dv. kOwnsY: owned tiles
// have a y, too; kScalars: rows of the stream have two numbers each.
template <int kOwners_, int Dqk, int Dv, bool kOwnsY_, bool kScalars_, int kStages_, int kSlots_>
struct Memory {
  static constexpr int kOwners = kOwners_, kStages = kStages_, kSlots = kSlots_;
  static constexpr bool kOwnsY = kOwnsY_, kScalars = kScalars_;
  static constexpr int kXPanels = Dqk / 64, kYPanels = Dv / 64, kX = kXPanels * kPanel,
                       kY = kYPanels * kPanel;
  static constexpr int kThreads = (1 + kOwners) * kWarpgroup;
  static constexpr int kStage = kX + kY, kOwner = kX + (kOwnsY ? kY : 0), kSlot = kOwners * kOwner;
  static constexpr int kOwned = kStages * kStage, kNumbers = kOwned + kSlots * kSlot,
                       kNumbersOfStage = kScalars ? 2 * kTile * 4 : 0,
                       kInfos = kNumbers + kStages * kNumbersOfStage, kWorks = kInfos + kStages * 16,
                       kWork = (sizeof(Work<kOwners>) + 15) / 16 * 16, kBarriers = kWorks + kSlots * kWork,
                       kEnd = kBarriers + 2 * (kStages + kSlots) * 8,
                       kBytes = kEnd + 1024;  // the first panel is moved up to a multiple of 1024

  std::uint32_t base;

  __device__ static Memory of(const char* shared) { return {(shared_address(shared) + 1023) & ~1023u}; }
  __device__ std::uint32_t x(int stage) const { return base + stage * kStage; }
  __device__ std::uint32_t y(int stage) const { return x(stage) + kX; }
  __device__ std::uint32_t own_x(int slot, int owner) const {
    return base + kOwned + slot * kSlot + owner * kOwner;
  }
  __device__ std::uint32_t own_y(int slot, int owner) const { return own_x(slot, owner) + kX; }
  __device__ std::uint32_t numbers(int stage) const { return base + kNumbers + stage * kNumbersOfStage; }
  __device__ std::uint32_t info(int stage) const { return base + kInfos + stage * 16; }
  __device__ Work<kOwners>& work(char* shared, int slot) const {
    return *reinterpret_cast<Work<kOwners>*>(shared + (base - shared_address(shared)) + kWorks +
                                             slot * kWork);
  }
  __device__ std::uint32_t full(int stage) const { return base + kBarriers + stage * 8; }
  __device__ std::uint32_t free(int stage) const { return full(kStages + stage); }
  __device__ std::uint32_t slot_full(int slot) const { return full(2 * kStages + slot); }
  __device__ std::uint32_t slot_free(int slot) const { return full(2 * kStages + kSlots + slot); }

  // By all threads of the block, before anything else. Fillings are announced by the copies of the producer's
  // threads and by one of them for what it wrote itself; emptyings by each warp of the consumers.
  __device__ void init() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i)
        init_barrier(full(i), kWarpgroup + 1), init_barrier(free(i), kOwners * kWarpgroup / 32);
      for (int i = 0; i < kSlots; ++i)
        init_barrier(slot_full(i), kWarpgroup + 1), init_barrier(slot_free(i), kOwners * kWarpgroup / 32);
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
};

// Tasks are numbered (rank, batch, head), head fastest, those of rank 0 are the longest. Blocks take them
// back and forth, so that none gets the longest of every round.
class Tasks {
 public:
  __device__ Tasks(const HeadsView& x, int tiles, int owners)
      : heads_(static_cast<unsigned>(x.heads)),
        pairs_(static_cast<unsigned>(x.batch) * heads_),
        count_(pairs_ * static_cast<unsigned>((tiles + owners - 1) / owners)) {}
  __device__ __forceinline__ bool next() {
    do {
      if (static_cast<std::uint64_t>(round_) * gridDim.x >= count_) return false;
      task_ = round_ * gridDim.x + (round_ % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
      ++round_;
    } while (task_ >= count_);
    return true;
  }
  __device__ int rank() const { return static_cast<int>(task_ / pairs_); }
  __device__ int batch() const { return static_cast<int>(task_ % pairs_ / heads_); }
  __device__ int head() const { return static_cast<int>(task_ % heads_); }

 private:
  unsigned heads_, pairs_, count_, task_ = 0, round_ = 0;
};

// What a producer gathers: the owned rows and those of the stream.
struct Sources {
  const HeadsView &own_x, &own_y, &x, &y;
  const TensorView &lse, &delta;  // of the rows of the stream
};

// The four rows of a tile that a thread of the producer copies a chunk of: thread / 8 + 16 i.
struct FourRows {
  int position[4];
  __device__ __forceinline__ static FourRows of(const std::int32_t* order, int tile) {
    FourRows r;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      r.position[i] =
          tile < 0 ? -1 : __ldg(order + static_cast<std::int64_t>(tile) * kTile + threadIdx.x / 8 + 16 * i);
    return r;
  }
  // Empty slots and columns beyond the true size become zeros.
  template <int kPanels>
  __device__ __forceinline__ void gather(std::uint32_t tile, const Rows& rows) const {
    const std::uint32_t row = threadIdx.x / 8, chunk = threadIdx.x % 8,
                        to = tile + row * 128 + ((chunk ^ (row & 7)) << 4);
#pragma unroll 1  // registers are scarce
    for (int panel = 0; panel < kPanels; ++panel)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        copy_16_async(to + panel * kPanel + i * 2048, rows.at(position[i], chunk + panel * 8),
                      position[i] >= 0 && chunk + panel * 8 < rows.chunks);
  }
};

// The merged lists of the owned tiles.
template <int kOwners>
struct Lists {
  const std::int32_t *tiles, *masks;
  int at[kOwners], end[kOwners], front[kOwners];

  __device__ __forceinline__ Lists(const Direction& d, const int (&own)[kOwners])
      : tiles(d.tile), masks(d.mask) {
#pragma unroll
    for (int i = 0; i < kOwners; ++i) {
      at[i] = own[i] < 0 ? 0 : __ldg(d.start + own[i]);
      end[i] = own[i] < 0 ? 0 : __ldg(d.start + own[i] + 1);
      front[i] = at[i] < end[i] ? __ldg(tiles + at[i]) : kEnd;
    }
  }
  __device__ __forceinline__ int first() const {
    int tile = front[0];
#pragma unroll
    for (int i = 1; i < kOwners; ++i) tile = min(tile, front[i]);
    return tile;
  }
  // Of owner `i` (a constant once inlined).
  __device__ __forceinline__ int mask(int i, int tile) const {
    int mask = kSkip;
#pragma unroll
    for (int k = 0; k < kOwners; ++k)
      if (k == i && front[k] == tile) mask = __ldg(masks + at[k]);
    return mask;
  }
  __device__ __forceinline__ void drop(int tile) {
#pragma unroll
    for (int i = 0; i < kOwners; ++i)
      if (front[i] == tile) front[i] = ++at[i] < end[i] ? __ldg(tiles + at[i]) : kEnd;
  }
};

// The whole life of the producer. kSide is Direction::rows or Direction::columns.
template <auto kSide, class M>
__device__ __forceinline__ void produce(const M& memory, char* shared, const AttentionMaps& maps,
                                        const AttentionPass& pass, int tiles, const Sources& from) {
  constexpr int kOwners = M::kOwners;
  const bool speaker = threadIdx.x == 0;
  Ring<M::kStages> stage;
  Ring<M::kSlots> slot;
  for (Tasks tasks(from.own_x, tiles, kOwners); tasks.next();) {
    const int b = tasks.batch(), h = tasks.head();
    const TileMap& map = pass.maps[maps.group_of_head[h]];
    const Direction d = kSide(map);
    int own[kOwners];
#pragma unroll
    for (int i = 0; i < kOwners; ++i) {
      const int rank = tasks.rank() * kOwners + i;
      own[i] = rank < d.own_tiles ? __ldg(d.schedule + rank) : -1;
    }
    Lists<kOwners> lists(d, own);
    int tile = lists.first();
    FourRows rows = FourRows::of(d.other_order, tile == kEnd ? -1 : tile);

    wait_for_phase(memory.slot_free(slot.at), slot.parity ^ 1);
    if (speaker) {
      Work<kOwners>& work = memory.work(shared, slot.at);
#pragma unroll
      for (int i = 0; i < kOwners; ++i) work.tile[i] = own[i];
      work.b = b;
      work.h = h;
      work.empty = tile == kEnd;
      work.accumulate = map.accumulate;
      work.own_order = d.own_order;
      work.masks = d.masks;
    }
    {
      const Rows own_x = Rows::of(from.own_x, b, h), own_y = Rows::of(from.own_y, b, h);
#pragma unroll
      for (int i = 0; i < kOwners; ++i) {
        const FourRows mine = FourRows::of(d.own_order, own[i]);
        mine.gather<M::kXPanels>(memory.own_x(slot.at, i), own_x);
        if constexpr (M::kOwnsY) mine.gather<M::kYPanels>(memory.own_y(slot.at, i), own_y);
      }
    }
    arrive_after_copies(memory.slot_full(slot.at));
    if (speaker) arrive(memory.slot_full(slot.at));
    slot.advance();

    const Rows x = Rows::of(from.x, b, h), y = Rows::of(from.y, b, h);
    const float* number = nullptr;  // this thread's: lse for the first 64, delta for the others
    if constexpr (M::kScalars)
      number = static_cast<const float*>((threadIdx.x < kTile ? from.lse : from.delta).data) +
               (b * from.x.heads + h) * from.x.time;
    while (tile != kEnd) {
      int number_at = -1;
      if constexpr (M::kScalars)
        number_at = __ldg(d.other_order + static_cast<std::int64_t>(tile) * kTile + threadIdx.x % kTile);
      int4 info;
      if (speaker) info.x = lists.mask(0, tile), info.y = lists.mask(1, tile), info.z = lists.mask(2, tile);
      lists.drop(tile);
      const int next = lists.first();
      const FourRows rows_after = FourRows::of(d.other_order, next == kEnd ? -1 : next);

      wait_for_phase(memory.free(stage.at), stage.parity ^ 1);
      rows.gather<M::kXPanels>(memory.x(stage.at), x);
      rows.gather<M::kYPanels>(memory.y(stage.at), y);
      if constexpr (M::kScalars)
        copy_4_async(memory.numbers(stage.at) + threadIdx.x * 4, number + max(number_at, 0), number_at >= 0);
      arrive_after_copies(memory.full(stage.at));
      if (speaker) {
        info.w = next == kEnd;
        asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(memory.info(stage.at)), "r"(info.x),
                     "r"(info.y), "r"(info.z), "r"(info.w)
                     : "memory");
        arrive(memory.full(stage.at));
      }
      stage.advance();
      rows = rows_after;
      tile = next;
    }
  }
}

// A consumer warpgroup's view of the rings.
template <class M>
class Consumer {
 public:
  __device__ Consumer(const M& memory, char* shared)
      : memory_(memory), shared_(shared), own_(same_in_warp(threadIdx.x / kWarpgroup - 1)) {}

  // Waits for the next task.
  __device__ __forceinline__ const Work<M::kOwners>& take_task() {
    wait_for_phase(memory_.slot_full(slot_.at), slot_.parity);
    const Work<M::kOwners>& work = memory_.work(shared_, slot_.at);
    ended_ = same_in_warp(work.empty);
    return work;
  }
  __device__ std::uint32_t own_x() const { return memory_.own_x(same_in_warp(slot_.at), own_); }
  __device__ std::uint32_t own_y() const { return memory_.own_y(same_in_warp(slot_.at), own_); }
  // The task and its own tiles are not read any more.
  __device__ __forceinline__ void release_task() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(memory_.slot_free(slot_.at));
    slot_.advance();
  }

  // Waits for the next step: its mask, kSkip if this warpgroup has no tile there, or kEnd at the end of the
  // task. At most two stages may be held meanwhile: the producer needs a third.
  __device__ __forceinline__ int step() {
    if (ended_) return kEnd;
    wait_for_phase(memory_.full(stage_.at), stage_.parity);
    int mask, last;
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(mask) : "r"(memory_.info(stage_.at) + own_ * 4));
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(last) : "r"(memory_.info(stage_.at) + 12));
    at_ = same_in_warp(stage_.at);
    ended_ = same_in_warp(last);
    mask = same_in_warp(mask);
    stage_.advance();
    if (mask == kSkip)
      release(at_);
    else
      show_to_products();
    return mask;
  }
  // The same without kSkip.
  __device__ __forceinline__ int next() {
    int mask = kSkip;
    while (mask == kSkip) mask = step();
    return mask;
  }
  __device__ int stage() const { return at_; }
  __device__ __forceinline__ void release(int stage) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(memory_.free(stage));
  }
  __device__ int own() const { return own_; }

 private:
  const M& memory_;
  char* shared_;
  Ring<M::kStages> stage_;
  Ring<M::kSlots> slot_;
  int own_, at_ = 0, ended_ = 0;
};

// ---- between products ----

// This thread's row: 0 for g, 1 for g + 8.
__device__ __forceinline__ int row_of(int half) {
  return threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 4 + half * 8;
}

// Two mask words, shifted so that bit 8 j and 8 j + 1 are this thread's columns.
struct MaskWords {
  std::uint64_t row[2] = {~std::uint64_t{0}, ~std::uint64_t{0}};
  __device__ __forceinline__ void load(const std::uint64_t* masks, int mask) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      row[half] =
          __ldg(masks + static_cast<std::int64_t>(mask) * kTile + row_of(half)) >> (threadIdx.x % 4 * 2);
  }
  __device__ __forceinline__ void apply(float (&s)[32], float value) const {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (!(row[half] >> (8 * j + i) & 1)) s[4 * j + 2 * half + i] = value;
  }
};

// Position in the owned tile of this thread's rows, -1: empty.
template <int kOwners>
__device__ __forceinline__ int position_of(const Work<kOwners>& work, int own, int half) {
  const int tile = work.tile[own];
  return tile < 0 ? -1 : __ldg(work.own_order + static_cast<std::int64_t>(tile) * kTile + row_of(half));
}

// Rounds this thread's part of a row (64 or 128 columns of `c`) times `factor` and stores it at `position`.
// add: what is there is added, times `kept`. Lanes of a quad exchange pieces so that each writes 16 bytes.
template <class T, int kHalf, int N>
__device__ __forceinline__ void store_row(const float (&c)[N], float factor, bool add, float kept,
                                          int position, const Rows& out) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int group = 0; group < N / 16; ++group) {
    std::uint32_t w[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int j = 4 * group + k;
      float low = c[4 * j + 2 * kHalf] * factor, high = c[4 * j + 2 * kHalf + 1] * factor;
      if (add && position >= 0 && j < static_cast<int>(out.chunks)) {
        const auto before = *reinterpret_cast<const std::uint32_t*>(out.at(position, j) + t * 4);
        low = fmaf(low_half<T>(before), kept, low);
        high = fmaf(high_half<T>(before), kept, high);
      }
      w[k] = pack<T>(low, high);
    }
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2)
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (k & bit) continue;
        const bool odd = t & bit;
        const std::uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? w[k] : w[k | bit], bit);
        if (odd)
          w[k] = got;
        else
          w[k | bit] = got;
      }
    const int chunk = 4 * group + t;
    if (position >= 0 && chunk < static_cast<int>(out.chunks))
      *reinterpret_cast<uint4*>(const_cast<char*>(out.at(position, chunk))) =
          make_uint4(w[0], w[1], w[2], w[3]);
  }
}

}  // namespace weft::attention::hopper
