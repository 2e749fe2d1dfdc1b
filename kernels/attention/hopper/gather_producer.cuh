// SPDX-License-Identifier: MIT
// The producer by cp.async, for any order of slots: merges lists and gathers rows into the rings of
// stream.cuh.
#pragma once

#include "kernels/attention/hopper/stream.cuh"

namespace weft::attention::hopper {
// What a producer gathers: the stationary and the streamed side.
struct Sources {
  const HeadsView &own_x, &own_y, &x, &y;
  const TensorView &lse, &delta;  // of the rows of the stream
};

// The four rows of a tile that a thread of the producer copies a chunk of: thread / 8 + 16 i.
struct FourRows {
  int position[4];
  __device__ __forceinline__ static FourRows of(const int32_t* order, int tile) {
    FourRows r;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      r.position[i] =
          tile < 0 ? -1 : __ldg(order + static_cast<int64_t>(tile) * kTile + threadIdx.x / 8 + 16 * i);
    return r;
  }
  // Empty slots and columns beyond the true size become zeros.
  template <int kPanels> __device__ __forceinline__ void gather(uint32_t tile, const Rows& rows) const {
    const uint32_t row = threadIdx.x / 8, chunk = threadIdx.x % 8,
                   to = tile + row * 128 + ((chunk ^ (row & 7)) << 4);
#pragma unroll 1  // registers are scarce
    for (int panel = 0; panel < kPanels; ++panel)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        cp_async_16(to + panel * kPanel + i * 2048, rows.at(position[i], chunk + panel * 8),
                    position[i] >= 0 && chunk + panel * 8 < rows.chunks);
  }
};

template <int kOwners> struct Lists {
  const int32_t *tiles, *masks;
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
  __device__ __forceinline__ void masks_of(int tile, int (&mask)[kOwners]) const {
#pragma unroll
    for (int i = 0; i < kOwners; ++i) mask[i] = front[i] == tile ? __ldg(masks + at[i]) : kSkip;
  }
  __device__ __forceinline__ void drop(int tile) {
#pragma unroll
    for (int i = 0; i < kOwners; ++i)
      if (front[i] == tile) front[i] = ++at[i] < end[i] ? __ldg(tiles + at[i]) : kEnd;
  }
};

// The producer warpgroup. kSide is Direction::query_stationary or Direction::key_stationary.
template <auto kSide, class M> class GatherProducer {
 public:
  __device__ GatherProducer(const M& memory, char* shared) : memory_(memory), shared_(shared) {}

  __device__ __forceinline__ void run(const AttentionMaps& maps, const AttentionPass& pass, int tiles,
                                      const Sources& from) {
    for (TileScheduler scheduler(from.own_x, tiles, kOwners); scheduler.next();) {
      const int b = scheduler.batch(), h = scheduler.head();
      const TileMap& map = pass.maps[maps.map_of(b, h)];
      const Direction d = kSide(map);
      int own[kOwners];
#pragma unroll
      for (int i = 0; i < kOwners; ++i) {
        const int rank = scheduler.rank() * kOwners + i;
        own[i] = rank < d.own_tiles ? __ldg(d.schedule + rank) : -1;
      }
      Lists<kOwners> lists(d, own);
      const FourRows rows = first_rows(d, lists.first());
      open_work(d, own, b, h, lists.first() == kEnd, map.accumulate, from);
      feed(d, lists, rows, b, h, from);
    }
    mbarrier_wait(memory_.own_free(own_stage_.at), own_stage_.parity ^ 1);
    if (speaks()) memory_.work(shared_, own_stage_.at).end = true;
    cp_async_mbarrier_arrive(memory_.own_full(own_stage_.at));
    if (speaks()) mbarrier_arrive(memory_.own_full(own_stage_.at));
  }

 private:
  static constexpr int kOwners = M::kOwners;
  __device__ static bool speaks() { return threadIdx.x == 0; }
  __device__ __forceinline__ static FourRows first_rows(const Direction& d, int tile) {
    return FourRows::of(d.other_order, tile == kEnd ? -1 : tile);
  }

  __device__ __forceinline__ void open_work(const Direction& d, const int (&own)[kOwners], int b, int h,
                                            bool empty, bool accumulate, const Sources& from) {
    mbarrier_wait(memory_.own_free(own_stage_.at), own_stage_.parity ^ 1);
    if (speaks()) {
      WorkItem<kOwners>& work = memory_.work(shared_, own_stage_.at);
#pragma unroll
      for (int i = 0; i < kOwners; ++i) work.tile[i] = own[i];
      work.b = b;
      work.h = h;
      work.empty = empty;
      work.end = false;
      work.accumulate = accumulate;
      work.own_order = d.own_order;
      work.masks = d.masks;
    }
    const Rows own_x = Rows::of(from.own_x, b, h), own_y = Rows::of(from.own_y, b, h);
#pragma unroll
    for (int i = 0; i < kOwners; ++i) {
      const FourRows mine = FourRows::of(d.own_order, own[i]);
      mine.gather<M::kXPanels>(memory_.own_x(own_stage_.at, i), own_x);
      if constexpr (M::kOwnsY) mine.gather<M::kYPanels>(memory_.own_y(own_stage_.at, i), own_y);
    }
    cp_async_mbarrier_arrive(memory_.own_full(own_stage_.at));
    if (speaks()) mbarrier_arrive(memory_.own_full(own_stage_.at));
    own_stage_.advance();
  }

  // All iterations of a work item. Slots are looked up one ahead: the addresses of the rows come from them.
  __device__ __forceinline__ void feed(const Direction& d, Lists<kOwners>& lists, const FourRows& first,
                                       int b, int h, const Sources& from) {
    const Rows x = Rows::of(from.x, b, h), y = Rows::of(from.y, b, h);
    const float* scalars = nullptr;  // of this thread: lse for the first 64, delta for the others
    if constexpr (M::kScalars)
      scalars = static_cast<const float*>((threadIdx.x < kTile ? from.lse : from.delta).data) +
                (b * from.x.heads + h) * from.x.time;
    FourRows rows = first;
    for (int tile = lists.first(); tile != kEnd;) {
      int number_at = -1;
      if constexpr (M::kScalars)
        number_at = __ldg(d.other_order + static_cast<int64_t>(tile) * kTile + threadIdx.x % kTile);
      int mask[kOwners];
      if (speaks()) lists.masks_of(tile, mask);
      lists.drop(tile);
      tile = lists.first();
      const FourRows rows_after = first_rows(d, tile);

      mbarrier_wait(memory_.free(stage_.at), stage_.parity ^ 1);
      rows.gather<M::kXPanels>(memory_.x(stage_.at), x);
      rows.gather<M::kYPanels>(memory_.y(stage_.at), y);
      if constexpr (M::kScalars)
        cp_async_4(memory_.scalar(stage_.at, threadIdx.x % kTile) + threadIdx.x / kTile * 8,
                   scalars + max(number_at, 0), number_at >= 0);
      cp_async_mbarrier_arrive(memory_.full(stage_.at));
      if (speaks()) {
#pragma unroll
        for (int i = 0; i < kOwners; ++i) write_info(memory_.info(stage_.at) + i * 4, mask[i], tile == kEnd);
        mbarrier_arrive(memory_.full(stage_.at));
      }
      stage_.advance();
      rows = rows_after;
    }
  }

  const M& memory_;
  char* shared_;
  Ring<M::kStages> stage_;
  Ring<M::kOwnStages> own_stage_;
};
}  // namespace weft::attention::hopper
