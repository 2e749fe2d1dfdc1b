// SPDX-License-Identifier: MIT
// The mainloop over tiles of edge 16. A warp owns 16 rows and needs no barrier of the block, so
// that lists of different lengths do not wait for each other. It prefetches rows to shared memory
// one iteration ahead, and slots and list entries to registers two and three ahead.
#pragma once

#include "kernels/attention/ampere/fragments.cuh"
#include "kernels/attention/ampere/mainloop.cuh"
#include "kernels/attention/launch.cuh"

#include <algorithm>

namespace weft::attention::ampere {
inline constexpr int kRows16Warps = 2;  // of a block: they share nothing but its place in the grid

using Rows16Task = Task<1, kSmallTile>;

// The task of a warp, which all its lanes call; false: there is nothing to do.
template <auto kSide, class Parameters>
__device__ __forceinline__ bool take_task(Rows16Task& task, const BlockIndex& at,
                                          const Parameters& p, const AttentionPass& pass,
                                          const HeadsView& x, const HeadsView& y,
                                          const TensorView& delta) {
  if (threadIdx.x % 32 == 0)
    fill_task<kSide>(task, at.rank * kRows16Warps + static_cast<int>(threadIdx.x / 32), at, p, pass,
                     x, y, delta);
  __syncwarp();
  return task.tile[0] >= 0;
}

// A warp copies kRows rows of P elements; lane r names the position of row r, < 0 gives zeros.
template <int P, int kRows>
__device__ __forceinline__ void gather_rows_of_lanes(uint32_t tile, const Rows& x, int position) {
  constexpr int kChunks = P / 8;
#pragma unroll
  for (int i = 0; i < kRows * kChunks / 32; ++i) {
    const uint32_t item = threadIdx.x % 32 + i * 32, row = item / kChunks, chunk = item % kChunks;
    const int at = __shfl_sync(0xffffffffu, position, static_cast<int>(row));
    cp_async_16(tile + chunk_offset<P>(row, chunk), x.at(at, chunk), at >= 0 && chunk < x.chunks);
  }
}

template <int kEntries, int Px, int Py, bool kScalars>
struct Rows16Layout {
  static constexpr int kRows = kEntries * kSmallTile, kX = 0, kY = kRows * Px * 2,
                       kSegments = kY + kRows * Py * 2, kLse = kSegments + kRows * 4,
                       kDelta = kLse + (kScalars ? kRows * 4 : 0),
                       kStage = kDelta + (kScalars ? kRows * 4 : 0), kBytes = 2 * kStage;
};

// The tiles of a list, kEntries an iteration: x and y of kRows gathered rows, lse and delta, in two
// stages.
template <int kEntries, int Px, int Py, bool kScalars>
class Rows16Stream {
 public:
  using Layout = Rows16Layout<kEntries, Px, Py, kScalars>;
  static constexpr int kRows = Layout::kRows;

  __device__ Rows16Stream(uint32_t shared, const Rows16Task& task)
      : shared_(shared),
        task_(task),
        entry_(task.begin[0]),
        end_(task.end[0]) {}

  // Starts the first step. Stage 1 is not touched before the first arrive().
  __device__ __forceinline__ void begin() {
    ahead_ = entry_;
    look_up_entry();
    look_up_slot();
    word_ = next_word_;
    look_up_entry();
    fetch(0);
    look_up_slot();
    look_up_entry();
  }

  __device__ bool done() const { return entry_ >= end_; }

  // Waits for the current step, and starts the one after it.
  __device__ __forceinline__ void arrive() {
    cp_async_wait_all();
    __syncwarp();
    if (entry_ + kEntries < end_) fetch(stage_ ^ 1);
    word_after_ = next_word_;
    look_up_slot();
    look_up_entry();
  }

  __device__ __forceinline__ void advance() {
    entry_ += kEntries;
    word_ = word_after_;
    stage_ ^= 1;
  }

  __device__ uint32_t x(int stage) const { return at(stage, Layout::kX); }

  __device__ uint32_t y(int stage) const { return at(stage, Layout::kY); }

  __device__ uint32_t x() const { return x(stage_); }

  __device__ uint32_t y() const { return y(stage_); }

  __device__ float2 lse(int column) const {
    return ld_shared_float2(at(stage_, Layout::kLse) + column * 4);
  }

  __device__ float2 delta(int column) const {
    return ld_shared_float2(at(stage_, Layout::kDelta) + column * 4);
  }

  // kSkip: nothing of the step is attended; -1: all; else bit k of word[i]: row g or g + 8 attends
  // row k.
  __device__ __forceinline__ int words(uint32_t (&word)[2]) const {
    constexpr uint32_t kAll = kEntries == 2 ? 0xffffffffu : 0xffffu;
    const int lane = threadIdx.x % 32, g = lane >> 2;
    uint32_t mine = word_;  // of row lane % 16, from here on over all entries
    if constexpr (kEntries == 2) {
      const uint32_t other = __shfl_xor_sync(0xffffffffu, mine, 16);
      mine = lane < 16 ? other << 16 | mine : mine << 16 | other;
    }
    if (task_.own_segments) mine &= within_segments();
    if (__all_sync(0xffffffffu, mine == kAll)) return -1;
    if (__all_sync(0xffffffffu, mine == 0)) return kSkip;
    word[0] = __shfl_sync(0xffffffffu, mine, g);
    word[1] = __shfl_sync(0xffffffffu, mine, g + 8);
    return 0;
  }

 private:
  __device__ uint32_t at(int stage, int offset) const {
    return shared_ + stage * Layout::kStage + offset;
  }

  // Rows of the current step in the segment of the owned row lane % 16.
  __device__ __forceinline__ uint32_t within_segments() const {
    const int lane = threadIdx.x % 32, own_segment = task_.own_segment(lane % 16);
    const int other = ld_shared_int(at(stage_, Layout::kSegments) + lane % kRows * 4);
    uint32_t bits = 0;
#pragma unroll 1
    for (int r = 0; r < 16; ++r) {
      const int own = __shfl_sync(0xffffffffu, own_segment, r);
      const uint32_t same = __ballot_sync(0xffffffffu, other == own);
      if (lane % 16 == r && own >= 0) bits = same;
    }
    return bits;
  }

  // Lane r's tile and mask number of the entry that its row is in; kEnd: none.
  __device__ __forceinline__ void look_up_entry() {
    const int e = ahead_ + static_cast<int>(threadIdx.x % kRows) / kSmallTile;
    tile_ = e < end_ ? task_.direction.tile[e] : kEnd;
    mask_ = e < end_ ? task_.direction.mask[e] : -1;
    ahead_ += kEntries;
  }

  // Its position, and the bits of the owned row r % 16 in that entry.
  __device__ __forceinline__ void look_up_slot() {
    const int row = threadIdx.x % kSmallTile;
    const bool any = tile_ != kEnd;
    position_ =
        any ? task_.direction.other_order[static_cast<int64_t>(tile_) * kSmallTile + row] : -1;
    next_word_ = !any ? 0
                 : mask_ < 0
                     ? 0xffffu
                     : static_cast<uint32_t>(
                           task_.direction.masks[static_cast<int64_t>(mask_) * kSmallTile + row]);
  }

  __device__ __forceinline__ void fetch(int stage) {
    gather_rows_of_lanes<Px, kRows>(at(stage, Layout::kX), task_.x, position_);
    gather_rows_of_lanes<Py, kRows>(at(stage, Layout::kY), task_.y, position_);
    const int row = threadIdx.x % 32, t = max(position_, 0);
    if (row >= kRows) return;
    if (task_.other_segments)
      cp_async_4(at(stage, Layout::kSegments) + row * 4, task_.other_segments + t, position_ >= 0);
    if constexpr (kScalars) {
      cp_async_4(at(stage, Layout::kLse) + row * 4, task_.lse + t, position_ >= 0);
      cp_async_4(at(stage, Layout::kDelta) + row * 4, task_.delta + t, position_ >= 0);
    }
  }

  const uint32_t shared_;
  const Rows16Task& task_;
  int entry_, end_, stage_ = 0;  // the current step
  uint32_t word_, word_after_;   // of it and of the next
  int position_;                 // of the next, then of the one after that
  uint32_t next_word_;
  int ahead_, tile_, mask_;  // two and three steps ahead
};

template <int N>
__device__ __forceinline__ void apply_words(Accumulators<1, N>& s, const uint32_t (&word)[2],
                                            float value) {
  const int t = threadIdx.x & 3;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t bits = word[half] >> (2 * t);
#pragma unroll
    for (int n = 0; n < N / 8; ++n) {
      if (!(bits >> (8 * n) & 1)) s.c[0][n][2 * half] = value;
      if (!(bits >> (8 * n + 1) & 1)) s.c[0][n][2 * half + 1] = value;
    }
  }
}

// The owned rows as A fragments: in registers where there is room, else in shared memory.
template <class T, int P, bool kInRegisters>
class OwnedRows {
 public:
  // `tile` holds the rows until load(), or as long as they are used where they stay in shared
  // memory.
  __device__ explicit OwnedRows(uint32_t tile)
      : tile_(tile) {}

  __device__ __forceinline__ void gather(const HeadsView& x, const BlockIndex& at,
                                         const Rows16Task& task) const {
    gather_rows_of_lanes<P, kSmallTile>(tile_, Rows::of(x, at.b, at.h),
                                        task.position(threadIdx.x % kSmallTile));
  }

  __device__ __forceinline__ void load() {
    if constexpr (kInRegisters) load_fragments<1, P, P>(f_, tile_, 0);
  }

  // s = these rows times the transposed rows of a tile.
  template <int N>
  __device__ __forceinline__ void multiply(Accumulators<1, N>& s, uint32_t other) const {
    if constexpr (kInRegisters)
      mma_abt<T, 1, N, P>(s, f_, other, 0);
    else
      mma_abt<T, 1, N, P>(s, tile_, 0, other, 0);
  }

 private:
  uint32_t tile_;
  Fragments<1, kInRegisters ? P : 16> f_;
};

// Two entries (32 rows) a step while rows are short; owned rows in registers while there is room.
template <int Dqk, int Dv>
struct Rows16Shape {
  static constexpr int kLarger = Dqk > Dv ? Dqk : Dv;
  static constexpr int kEntries = kLarger <= 64 ? 2 : 1, N = kEntries * kSmallTile;
  static constexpr int kThreads = kRows16Warps * 32;
};

// As with_head_sizes(): these kernels take any size that there is.
template <class X, class F>
void with_rows16_head_sizes(const X& x, F&& f) {
  const int64_t larger = std::max(x.q.size, x.v.size);
  if (larger <= 128) return with_head_sizes(x, f);
  with_type(x, [&]<class T>() {
    if (larger <= 192) return f.template operator()<T, 192, 192>();
    return f.template operator()<T, 256, 256>();
  });
}
}  // namespace weft::attention::ampere
