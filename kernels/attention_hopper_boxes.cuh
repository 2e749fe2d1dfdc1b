// SPDX-License-Identifier: MIT
// The producer where slots follow each other in runs of 8 or more positions: one warp, whose lanes ask the
// copy engine for a box of rows each (PTX ISA, "cp.async.bulk.tensor"). It writes the same 128-byte swizzle.
#pragma once

#include "kernels/attention_hopper_producer.cuh"
#include "kernels/attention_hopper_tensor_map.cuh"

namespace weft::attention::hopper {

// The box of rows from `row` on, columns of `panel`, to shared memory; its bytes are counted at `barrier`.
__device__ __forceinline__ void copy_box(std::uint32_t to, const CUtensorMap& from, int panel, int row, int h,
                                         int b, std::uint32_t barrier) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
      "%4, %5}], [%6];" ::"r"(to),
      "l"(&from), "r"(panel * 64), "r"(row), "r"(h), "r"(b), "r"(barrier)
      : "memory");
#endif
}

// Warp 0 of the producer warpgroup. kSide is Direction::rows or Direction::columns.
template <auto kSide, class M>
class BoxProducer {
 public:
  __device__ BoxProducer(const M& memory, char* shared) : memory_(memory), shared_(shared) {}

  // Its whole life. `own` and `stream` are the shapes of what is owned and of what is walked over.
  __device__ __forceinline__ void run(const AttentionMaps& maps, const AttentionPass& pass, int tiles,
                                      const HeadsView& own_x, const HeadsView& x, const Boxes& boxes,
                                      const TensorView& lse, const TensorView& delta) {
    for (Tasks tasks(own_x, tiles, kOwners); tasks.next();) {
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
      Step step = look_up(d, lists.first(), boxes.run, static_cast<int>(x.time));
      open_task(d, own, b, h, lists.first() == kEnd, map.accumulate, boxes, static_cast<int>(own_x.time));
      const float *lse_row = nullptr, *delta_row = nullptr;
      if constexpr (M::kScalars) {
        const std::int64_t first = (b * x.heads + h) * x.time;
        lse_row = static_cast<const float*>(lse.data) + first;
        delta_row = static_cast<const float*>(delta.data) + first;
      }
      for (int tile = lists.first(); tile != kEnd;) {
        int mask[kOwners];
        if (speaks()) lists.masks_of(tile, mask);
        lists.drop(tile);
        tile = lists.first();
        const Step after = look_up(d, tile, boxes.run, static_cast<int>(x.time));
        feed(mask, tile == kEnd, step, b, h, boxes, lse_row, delta_row);
        step = after;
      }
    }
  }

 private:
  static constexpr int kOwners = M::kOwners;
  // What a lane copies of a tile: a box from `row` on, and the numbers of two rows (-1: none).
  struct Step {
    int row, number[2];
  };
  __device__ static int lane() { return threadIdx.x; }
  __device__ static bool speaks() { return lane() == 0; }
  // First position of this lane's box: that of its first slot; past the end, which reads as zeros, where the
  // slots are empty.
  __device__ __forceinline__ static int first_row(const std::int32_t* order, int tile, int run, int time) {
    if (lane() * run >= kTile || tile < 0 || tile == kEnd) return time;
    const int row = __ldg(order + static_cast<std::int64_t>(tile) * kTile + lane() * run);
    return row < 0 ? time : row;
  }
  __device__ __forceinline__ static Step look_up(const Direction& d, int tile, int run, int time) {
    Step step{first_row(d.other_order, tile, run, time), {-1, -1}};
    if constexpr (M::kScalars) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (tile != kEnd)
          step.number[i] = __ldg(d.other_order + static_cast<std::int64_t>(tile) * kTile + lane() + 32 * i);
    }
    return step;
  }
  template <int kPanels>
  __device__ __forceinline__ static void copy(std::uint32_t to, const CUtensorMap& from, int run, int row,
                                              int h, int b, std::uint32_t barrier) {
    if (lane() * run >= kTile) return;
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel)
      copy_box(to + panel * kPanel + lane() * run * 128, from, panel, row, h, b, barrier);
  }

  __device__ __forceinline__ void open_task(const Direction& d, const int (&own)[kOwners], int b, int h,
                                            bool empty, bool accumulate, const Boxes& boxes, int time) {
    const std::uint32_t full = memory_.slot_full(slot_.at);
    wait_for_phase(memory_.slot_free(slot_.at), slot_.parity ^ 1);
    if (speaks()) {
      Work<kOwners>& work = memory_.work(shared_, slot_.at);
#pragma unroll
      for (int i = 0; i < kOwners; ++i) work.tile[i] = own[i];
      work.b = b;
      work.h = h;
      work.empty = empty;
      work.accumulate = accumulate;
      work.own_order = d.own_order;
      work.masks = d.masks;
      arrive_and_expect(full, M::kSlot);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kOwners; ++i) {
      const int row = first_row(d.own_order, own[i], boxes.own_run, time);
      copy<M::kXPanels>(memory_.own_x(slot_.at, i), boxes.own_x, boxes.own_run, row, h, b, full);
      if constexpr (M::kOwnsY)
        copy<M::kYPanels>(memory_.own_y(slot_.at, i), boxes.own_y, boxes.own_run, row, h, b, full);
    }
    slot_.advance();
  }

  __device__ __forceinline__ void feed(const int (&mask)[kOwners], bool last, const Step& step, int b, int h,
                                       const Boxes& boxes, const float* lse, const float* delta) {
    const std::uint32_t full = memory_.full(stage_.at);
    wait_for_phase(memory_.free(stage_.at), stage_.parity ^ 1);
    if (speaks()) {
      write_info(memory_.info(stage_.at), mask, last);
      arrive_and_expect(full, M::kStage);
    }
    __syncwarp();
    copy<M::kXPanels>(memory_.x(stage_.at), boxes.x, boxes.run, step.row, h, b, full);
    copy<M::kYPanels>(memory_.y(stage_.at), boxes.y, boxes.run, step.row, h, b, full);
    if constexpr (M::kScalars) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t to = memory_.numbers(stage_.at) + (lane() + 32 * i) * 4;
        const int at = max(step.number[i], 0);
        copy_4_async(to, lse + at, step.number[i] >= 0);
        copy_4_async(to + kTile * 4, delta + at, step.number[i] >= 0);
      }
      arrive_after_copies(full);
    }
    stage_.advance();
  }

  const M& memory_;
  char* shared_;
  Ring<M::kStages> stage_;
  Ring<M::kSlots> slot_;
};

// The producer warpgroup's part of a kernel.
template <auto kSide, class M>
__device__ __forceinline__ void produce(const M& memory, char* shared, const AttentionMaps& maps,
                                        const AttentionPass& pass, int tiles, const Sources& from,
                                        const Boxes& boxes) {
  if constexpr (!M::kBoxes)
    Producer<kSide, M>(memory, shared).run(maps, pass, tiles, from);
  else if (threadIdx.x < 32)
    BoxProducer<kSide, M>(memory, shared)
        .run(maps, pass, tiles, from.own_x, from.x, boxes, from.lse, from.delta);
}

}  // namespace weft::attention::hopper
