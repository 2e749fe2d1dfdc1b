// SPDX-License-Identifier: MIT
// What the mma.sync kernels share: the tiles that a block owns, the merged list of tiles of the
// other side, and the two-stage stream that gathers their rows into shared memory.
#pragma once

#include "kernels/attention/direction.cuh"
#include "kernels/device/mma.cuh"

namespace weft::attention::ampere {
// The work of a block, or of a warp of 16-row tiles, in shared memory to spare registers. Its
// kTiles tiles are neighbours in the schedule: their lists are equally long and mostly the same.
template <int kTiles, int kEdge = kTile>
struct Task {
  Direction direction;
  // owned tiles (-1: none), their entries in the lists
  int tile[kTiles], begin[kTiles], end[kTiles];
  bool accumulate;  // earlier passes left results to go on from
  // the streamed side: keys and values; in the key-stationary backward pass queries and dy
  Rows x, y;
  const float *lse, *delta;                      // of this (batch, head)
  const int32_t *own_segments, *other_segments;  // of this batch, by position; null: none

  // Position in row `row` (0 .. kTiles * kEdge - 1) of the owned tiles, -1: empty.
  __device__ __forceinline__ int position(int row) const {
    const int own = tile[row / kEdge];
    return own < 0 ? -1 : direction.own_order[static_cast<int64_t>(own) * kEdge + row % kEdge];
  }

  __device__ __forceinline__ int own_segment(int row) const {
    const int at = position(row);
    return at < 0 ? -1 : own_segments[at];
  }
};

__device__ __forceinline__ const int32_t* segments_of(const TensorView& x, int b) {
  return x.data ? static_cast<const int32_t*>(x.data) + b * x.shape[1] : nullptr;
}

// Fills a task from a rank of the schedule on; without any tile where there is nothing to do. kSide
// is a function of Direction; x and y stream by; `p` are the kernel's parameters.
template <auto kSide, int kTiles, int kEdge, class Parameters>
__device__ __forceinline__ void fill_task(Task<kTiles, kEdge>& task, int first_rank,
                                          const BlockIndex& at, const Parameters& p,
                                          const AttentionPass& pass, const HeadsView& x,
                                          const HeadsView& y, const TensorView& delta) {
  const TileMap& map = pass.maps[p.maps.map_of(at.b, at.h)];
  const Direction d = kSide(map);
  task.accumulate = map.accumulate;
  bool nothing = true;
  for (int i = 0; i < kTiles; ++i) {
    const int rank = first_rank + i, tile = rank < d.own_tiles ? d.schedule[rank] : -1;
    task.tile[i] = tile;
    task.begin[i] = tile < 0 ? 0 : d.start[tile];
    task.end[i] = tile < 0 ? 0 : d.start[tile + 1];
    if (tile >= 0 && (!task.accumulate || task.begin[i] < task.end[i])) nothing = false;
  }
  if (nothing) task.tile[0] = -1;
  const int64_t row = (at.b * p.lse.shape[1] + at.h) * p.lse.shape[2];
  task.direction = d;
  task.x = Rows::of(x, at.b, at.h);
  task.y = Rows::of(y, at.b, at.h);
  task.lse = static_cast<const float*>(p.lse.data) + row;
  task.delta = static_cast<const float*>(delta.data) + row;
  const int32_t *queries = segments_of(p.segments.queries, at.b),
                *keys = segments_of(p.segments.keys, at.b);
  constexpr bool kRows = kSide == Direction::query_stationary;
  task.own_segments = kRows ? queries : keys;
  task.other_segments = kRows ? keys : queries;
}

// The task of a block, which all its threads call; false: there is nothing to do.
template <auto kSide, int kTiles, class Parameters>
__device__ __forceinline__ bool take_task(Task<kTiles>& task, const BlockIndex& at,
                                          const Parameters& p, const AttentionPass& pass,
                                          const HeadsView& x, const HeadsView& y,
                                          const TensorView& delta) {
  if (threadIdx.x == 0) fill_task<kSide>(task, at.rank * kTiles, at, p, pass, x, y, delta);
  __syncthreads();
  return task.tile[0] >= 0;
}

// Merges the ascending lists of the owned tiles.
template <int kTiles>
struct Step {
  int tile, mask[kTiles];
};

template <int kTiles>
class ListIterator {
 public:
  __device__ explicit ListIterator(const Task<kTiles>& task)
      : task_(task) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      at_[i] = task.begin[i];
      front_[i] = at_[i] < task.end[i] ? task.direction.tile[at_[i]] : kEnd;
    }
  }

  __device__ __forceinline__ int peek() const {
    int tile = front_[0];
#pragma unroll
    for (int i = 1; i < kTiles; ++i) tile = min(tile, front_[i]);
    return tile;
  }

  __device__ __forceinline__ Step<kTiles> next() {
    Step<kTiles> step;
    step.tile = peek();
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      step.mask[i] = kSkip;
      if (front_[i] == step.tile && step.tile != kEnd) {
        step.mask[i] = task_.direction.mask[at_[i]];
        front_[i] = ++at_[i] < task_.end[i] ? task_.direction.tile[at_[i]] : kEnd;
      }
    }
    return step;
  }

 private:
  const Task<kTiles>& task_;
  int at_[kTiles], front_[kTiles];
};

// Starts copying kCount rows of P elements into a tile; position(row) < 0 gives zeros.
template <int P, int kThreads, int kCount, class Position>
__device__ __forceinline__ void gather_rows(uint32_t tile, const Rows& x, Position&& position) {
  constexpr int kChunks = P / 8;
#pragma unroll 4  // more addresses at a time would push accumulators out of the registers
  for (int i = 0; i < kCount * kChunks / kThreads; ++i) {
    const uint32_t item = threadIdx.x + i * kThreads, row = item / kChunks, chunk = item % kChunks;
    const int at = position(row);
    cp_async_16(tile + chunk_offset<P>(row, chunk), x.at(at, chunk), at >= 0 && chunk < x.chunks);
  }
}

// Shared memory of a stream, in bytes, and what lies where.
template <int kTiles, int Px, int Py, bool kScalars>
struct StreamLayout {
  static constexpr int kX = 0, kY = kTile * Px * 2, kMasks = kY + kTile * Py * 2,
                       kSlots = kMasks + kTiles * kTile * 8, kLse = kSlots + kTile * 4,
                       kDelta = kLse + (kScalars ? kTile * 4 : 0),
                       kStage = kDelta + (kScalars ? kTile * 4 : 0), kBytes = 2 * kStage;
};

// Streams the tiles of a list: x and y of kTile gathered rows, lse and delta of each row, and
// masks. One of two stages fills while the other is worked on; slots come one tile earlier.
template <int kTiles, int Px, int Py, int kThreads, bool kScalars>
class Stream {
 public:
  using Layout = StreamLayout<kTiles, Px, Py, kScalars>;

  __device__ Stream(uint32_t shared, const Task<kTiles>& task, int own)
      : shared_(shared),
        task_(task),
        list_(task),
        own_(own) {}

  // Starts the slots of the first two tiles: what is copied before begin() need not wait for them.
  __device__ __forceinline__ void begin_slots() {
    next_ = list_.next();
    fetch_slots(next_.tile, 0);
    fetch_slots(list_.peek(), 1);
    cp_async_commit_group();
  }

  __device__ __forceinline__ void begin() {
    cp_async_commit_group();
    cp_async_wait_all_but_last();
    __syncthreads();
    fetch(next_, 0);
    cp_async_commit_group();
    stage_ = 1;
    advance();
    fetch(next_, 1);
    cp_async_commit_group();
    next_started_ = true;
  }

  // Waits for the current tile and for what was copied before begin().
  __device__ __forceinline__ void wait() {
    if (next_started_)
      cp_async_wait_all_but_last();
    else
      cp_async_wait_all();
    __syncthreads();
  }

  __device__ bool done() const { return tile_ == kEnd; }

  // The same, and starts the tile after it.
  __device__ __forceinline__ void arrive() {
    wait();
    if (!next_started_) fetch(next_, stage_ ^ 1);
    next_started_ = false;
    fetch_slots(list_.peek(), stage_);
  }

  __device__ __forceinline__ void advance() {
    tile_ = next_.tile;
    mask_ = next_.mask[0];
#pragma unroll
    for (int i = 1; i < kTiles; ++i)
      if (own_ == i) mask_ = next_.mask[i];
    next_ = list_.next();
    stage_ ^= 1;
  }

  __device__ uint32_t x() const { return at(stage_, Layout::kX); }

  __device__ uint32_t y() const { return at(stage_, Layout::kY); }

  // Of the warp's own tile: kSkip, -1 (all pairs), or a mask whose words mask_word() gives by row.
  __device__ int mask() const { return mask_; }

  __device__ uint64_t mask_word(int row) const {
    return ld_shared_u64(at(stage_, Layout::kMasks) + row * 8);
  }

  // The same where there are segments, for the kRows rows of the block that the warp owns from
  // first_row on. Where segments part the tile, the words of these rows are narrowed.
  template <int kRows>
  __device__ __forceinline__ int mask_within_segments(int first_row) const {
    if (!task_.own_segments || mask_ == kSkip) return mask_;
    const int row = threadIdx.x % kRows, own_segment = task_.own_segment(first_row + row),
              other[2] = {other_segment(threadIdx.x % 32), other_segment(threadIdx.x % 32 + 32)};
    const int first = __shfl_sync(0xffffffffu, own_segment, 0);
    if (__all_sync(0xffffffffu,
                   first >= 0 && own_segment == first && other[0] == first && other[1] == first))
      return mask_;
    uint64_t word = 0;
#pragma unroll 1
    for (int r = 0; r < kRows; ++r) {
      const int own = __shfl_sync(0xffffffffu, own_segment, r);
      const uint64_t low = __ballot_sync(0xffffffffu, other[0] == own),
                     high = __ballot_sync(0xffffffffu, other[1] == own);
      if (row == r && own >= 0) word = high << 32 | low;
    }
    if (mask_ >= 0) word &= mask_word(first_row + row);
    if (__all_sync(0xffffffffu, word == 0)) return kSkip;
    __syncwarp();  // the words have been read by both halves of the warp where kRows is 16
    if (threadIdx.x % 32 < kRows)
      st_shared_u64(at(stage_, Layout::kMasks) + (first_row + row) * 8, word);
    __syncwarp();
    return 0;
  }

  __device__ float2 lse(int column) const {
    return ld_shared_float2(at(stage_, Layout::kLse) + column * 4);
  }

  __device__ float2 delta(int column) const {
    return ld_shared_float2(at(stage_, Layout::kDelta) + column * 4);
  }

 private:
  __device__ uint32_t at(int stage, int offset) const {
    return shared_ + stage * Layout::kStage + offset;
  }

  __device__ int slot(int stage, int row) const {
    return ld_shared_int(at(stage, Layout::kSlots) + row * 4);
  }

  // Segment of a slot of the current tile. Its slot numbers in shared memory are being replaced
  // already.
  __device__ __forceinline__ int other_segment(int row) const {
    const int t = task_.direction.other_order[static_cast<int64_t>(tile_) * kTile + row];
    return t < 0 ? -1 : task_.other_segments[t];
  }

  __device__ __forceinline__ void fetch_slots(int tile, int stage) {
    if (tile != kEnd && threadIdx.x < kTile / 4)
      cp_async_16(
          at(stage, Layout::kSlots) + threadIdx.x * 16,
          task_.direction.other_order + static_cast<int64_t>(tile) * kTile + threadIdx.x * 4, true);
  }

  __device__ __forceinline__ void fetch(const Step<kTiles>& step, int stage) {
    if (step.tile == kEnd) return;
    const auto position = [&](int row) { return slot(stage, row); };
    gather_rows<Px, kThreads, kTile>(at(stage, Layout::kX), task_.x, position);
    gather_rows<Py, kThreads, kTile>(at(stage, Layout::kY), task_.y, position);
    const int item = threadIdx.x;
    static_assert(kThreads >= kTile);
    if constexpr (kScalars) {
      if (item < kTile) {
        const int t = slot(stage, item);
        cp_async_4(at(stage, Layout::kLse) + item * 4, task_.lse + max(t, 0), t >= 0);
        cp_async_4(at(stage, Layout::kDelta) + item * 4, task_.delta + max(t, 0), t >= 0);
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
      if (step.mask[i] >= 0 && item < kTile / 2)
        cp_async_16(at(stage, Layout::kMasks) + (i * kTile / 2 + item) * 16,
                    task_.direction.masks + static_cast<int64_t>(step.mask[i]) * kTile + item * 2,
                    true);
  }

  uint32_t shared_;
  const Task<kTiles>& task_;
  ListIterator<kTiles> list_;
  Step<kTiles> next_;
  bool next_started_;              // already, by begin()
  int own_, stage_, tile_, mask_;  // of the warp; of the current tile
};
}  // namespace weft::attention::ampere
