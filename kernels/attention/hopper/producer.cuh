// SPDX-License-Identifier: MIT
// The producer: merges lists and fills the rings of stream.cuh. Warps take stages in turn. Where
// slots follow each other in runs of 8 or more positions, TMA loads a box of rows for each lane, in
// the 128-byte swizzle; for other orders lanes gather rows by cp.async.
#pragma once

#include "kernels/attention/hopper/stream.cuh"
#include "kernels/device/tma.cuh"

namespace weft::attention::hopper {
// What a producer loads: the stationary and the streamed side.
struct Sources {
  const HeadsView &own_x, &own_y, &x, &y;
  const TensorView &lse, &delta;  // of the rows of the stream
};

// The tensors of a launch, in boxes of `own_run` and `run` rows: the stationary and the streamed
// side.
struct TensorMaps {
  CUtensorMap own_x, own_y, x, y;
  int own_run, run;
  int together;  // pairs (batch, head) at a time
};

// How many pairs (batch, head) are worked on at a time: all where what they stream fits into half
// of an H100's L2, else an equal part of them, of an even number of parts. At n 4,096 the keys and
// values of 128 heads of 128 have 268 MB: 132 thread blocks with a pair each read all from HBM.
inline int pairs_together(const HeadsView& x, const HeadsView& y) {
  constexpr int64_t kFits = 24 << 20;
  const int64_t pairs = x.batch * x.heads, bytes = x.time * (x.size + y.size) * size_of(x.dtype);
  if (pairs * bytes <= kFits || pairs % 2 != 0) return static_cast<int>(pairs);
  int64_t groups = 2;
  while (groups < pairs && (pairs % groups != 0 || pairs / groups * bytes > kFits)) groups += 2;
  return static_cast<int>(pairs / groups);
}

// Boxes of `run` rows and 64 columns of one (batch, head). false: TMA does not take these strides.
inline bool describe(CUtensorMap& map, const HeadsView& x, int run) {
  return run >= 8 && encode_tensor_map<4>(map, x.dtype, x.data, {x.size, x.time, x.heads, x.batch},
                                          {x.time_stride, x.head_stride, x.batch_stride},
                                          {64, run, 1, 1}, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
}

// false: rows must be gathered one by one.
inline bool describe(TensorMaps& tensor_maps, int own_run, const HeadsView& own_x,
                     const HeadsView& own_y, int run, const HeadsView& x, const HeadsView& y) {
  tensor_maps.own_run = own_run;
  tensor_maps.run = run;
  tensor_maps.together = pairs_together(x, y);
  return describe(tensor_maps.own_x, own_x, own_run) &&
         describe(tensor_maps.own_y, own_y, own_run) && describe(tensor_maps.x, x, run) &&
         describe(tensor_maps.y, y, run);
}

// A warp of the producer. Each goes through all iterations and fills stages of its own, so that its
// waits hide behind the others. With TMA the first one also loads the stationary tiles, else each
// does its share. Nobody else fills a warp's stages: a parity tells two phases apart, not three.
// kSide is a function of Direction.
template <auto kSide, class M>
class Producer {
 public:
  __device__ explicit Producer(M& memory)
      : memory_(memory),
        warp_(warp_uniform(static_cast<int>(threadIdx.x / 32))) {}

  __device__ __forceinline__ void run(const AttentionMaps& maps, const AttentionPass& pass,
                                      int tiles, const Sources& from,
                                      const TensorMaps& tensor_maps) {
    const HeadsView& x = from.x;
    TileScheduler scheduler(from.own_x, tiles, kOwners, tensor_maps.together, M::kFused);
    Front ahead;
    for (unsigned round = 0; round < scheduler.rounds(); ++round) {
      if (round % kAhead == 0) ahead = look_ahead(scheduler, round, maps, pass);
      if (!scheduler.go_to(round)) continue;
      const TileScheduler::Place place = scheduler.place();
      const int b = place.b, h = place.h;
      const TileMap& map = pass.maps[maps.map_of(b, h)];
      const Direction of_map = kSide(map);
      // What is looked up anew takes no registers from iteration to iteration.
      const auto direction = [&] {
        return M::kFused || !(M::kTma || M::kScalars) ? kSide(map) : of_map;
      };
      Front front = ahead.of_task(round % kAhead);
      int key = front.first();
      if (warp_ == 0 || !M::kTma)
        open_work(direction(), front.own, b, h, key == kEnd, map.accumulate, tensor_maps, from);
      const float *lse_row = nullptr, *delta_row = nullptr;
      if constexpr (M::kScalars && !M::kFused) {
        const int64_t first = (b * x.heads + h) * x.time;
        lse_row = static_cast<const float*>(from.lse.data) + first;
        delta_row = static_cast<const float*>(from.delta.data) + first;
      }
      while (key != kEnd) {
        const Direction d = direction();
        const bool mine = stage_.stage % kWarps == warp_;
        Step step{};
        int mask = kSkip;
        if (mine) {
          step = look_up(d, tile_of(key), tensor_maps.run, static_cast<int>(x.time));
          mask = front.mask_of(key, d);
          if constexpr (M::kFused) step.tile = tile_of(key), step.turn = front.turn_of(key, d);
        }
        front.drop(key, d);
        key = front.first();
        if (mine) {
          if constexpr (M::kFused)
            lse_row = static_cast<const float*>(from.lse.data) + (b * x.heads + h) * x.time * 2;
          feed(mask, key == kEnd, step, b, h, tensor_maps, from, lse_row, delta_row);
        }
        stage_.advance();
      }
    }
    if (warp_ != 0 && M::kTma) return;
    memory_.own_pipeline.acquire(own_stage_);
    Barrier& full = memory_.own_pipeline.full[own_stage_.stage];
    if constexpr (!M::kTma) full.arrive_cp_async();
    if (warp_ != 0 || !is_lane_0()) return;
    memory_.work[own_stage_.stage].end = true;
    full.arrive();
  }

 private:
  static constexpr int kOwners = M::kOwners, kWarps = M::kProducingWarps;
  static constexpr unsigned kAhead = 32 / kOwners;  // work items

  // Lists are merged by rising keys: tiles ascending, or descending in the fused kernel.
  __device__ __forceinline__ static int tile_of(int key) { return M::kFused ? -1 - key : key; }

  __device__ __forceinline__ static int key_at(const Direction& d, int at) {
    return tile_of(__ldg(d.tile + at));  // the same both ways
  }

  // Lane i of a work item has the i-th stationary tile and the rest of its list.
  struct Front {
    int own = -1, at = 0, end = 0, key = kEnd;

    __device__ __forceinline__ int first() const { return __reduce_min_sync(0xffffffffu, key); }

    __device__ __forceinline__ int mask_of(int other, const Direction& d) const {
      return key == other ? __ldg(d.mask + at) : kSkip;
    }

    __device__ __forceinline__ int turn_of(int other, const Direction& d) const {
      return static_cast<int>(__reduce_or_sync(
          0xffffffffu, key == other ? static_cast<unsigned>(__ldg(d.turn + at)) : 0));
    }

    __device__ __forceinline__ void drop(int other, const Direction& d) {
      if (key != other) return;
      at += M::kFused ? -1 : 1;
      key = at != end ? key_at(d, at) : kEnd;
    }

    __device__ __forceinline__ Front of_task(unsigned task) const {
      const unsigned from = task * kOwners + lane();
      const auto get = [&](int x) { return __shfl_sync(0xffffffffu, x, from % 32); };
      Front f{get(own), get(at), get(end), get(key)};
      if (lane() >= kOwners) f.own = -1, f.key = kEnd;
      return f;
    }
  };

  // What a lane loads of a tile: a box from `row` on. It knows the positions of two slots (-1:
  // empty).
  struct Step {
    int row, number[2];
    int tile, turn;  // in the fused kernel
  };

  // The fronts of kAhead work items, one after the other in the lanes.
  __device__ __forceinline__ static Front look_ahead(TileScheduler scheduler, unsigned round,
                                                     const AttentionMaps& maps,
                                                     const AttentionPass& pass) {
    Front f;
    if (lane() < kAhead * kOwners && scheduler.go_to(round + lane() / kOwners)) {
      const TileScheduler::Place place = scheduler.place();
      const Direction d = kSide(pass.maps[maps.map_of(place.b, place.h)]);
      const int rank = place.rank * kOwners + lane() % kOwners;
      if (rank < d.own_tiles) {
        f.own = __ldg(d.schedule + rank);
        int begin = __ldg(d.start + f.own), past = __ldg(d.start + f.own + 1);
        if constexpr (!M::kTma) {  // SegmentMaps leave the ends of lists without pairs
          while (begin < past && __ldg(d.mask + begin) == kSkip) ++begin;
          while (begin < past && __ldg(d.mask + past - 1) == kSkip) --past;
        }
        f.at = M::kFused ? past - 1 : begin;
        f.end = M::kFused ? begin - 1 : past;
        if (begin < past) f.key = key_at(d, f.at);
      }
    }
    __syncwarp();
    return f;
  }

  __device__ static unsigned lane() { return threadIdx.x % 32; }

  __device__ static bool is_lane_0() { return lane() == 0; }

  // First position of this lane's box; past the end, which reads as zeros, where the slots are
  // empty.
  __device__ __forceinline__ static int first_row(const int32_t* order, int tile, int run,
                                                  int time) {
    if (static_cast<int>(lane()) * run >= kTile || tile < 0 || tile == kEnd) return time;
    const int row = __ldg(order + static_cast<int64_t>(tile) * kTile + lane() * run);
    return row < 0 ? time : row;
  }

  __device__ __forceinline__ static Step look_up(const Direction& d, int tile, int run, int time) {
    Step step{M::kTma ? first_row(d.other_order, tile, run, time) : 0, {-1, -1}, 0, 0};
    if constexpr (M::kScalars || !M::kTma) positions_of(step.number, d.other_order, tile);
    return step;
  }

  __device__ __forceinline__ static void positions_of(int (&position)[2], const int32_t* order,
                                                      int tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      position[i] =
          tile < 0 ? -1 : __ldg(order + static_cast<int64_t>(tile) * kTile + lane() + 32 * i);
  }

  // The rows of a tile in both matrices; eight lanes copy a row. Empty slots and columns beyond the
  // true size become zeros.
  template <int kXPanels, int kYPanels>
  __device__ __forceinline__ static void gather(const int (&position)[2], SharedAddress to_x,
                                                const Rows& x, SharedAddress to_y, const Rows& y) {
    const uint32_t chunk = lane() % 8, row = lane() / 8, even = row * 128 + ((chunk ^ row) << 4),
                   odd = (row + 4) * 128 + ((chunk ^ (row + 4)) << 4);
#pragma unroll 4
    for (int i = 0; i < kTile / 4; ++i) {
      const int from =
          __shfl_sync(0xffffffffu, i < kTile / 8 ? position[0] : position[1], 4 * i % 32 + row);
      const uint32_t at = (i % 2 ? odd : even) + i / 2 * 1024;
#pragma unroll
      for (int panel = 0; panel < kXPanels; ++panel)
        cp_async_16(to_x + panel * kPanel + at, x.at(from, chunk + panel * 8),
                    from >= 0 && chunk + panel * 8 < x.chunks);
#pragma unroll
      for (int panel = 0; panel < kYPanels; ++panel)
        cp_async_16(to_y + panel * kPanel + at, y.at(from, chunk + panel * 8),
                    from >= 0 && chunk + panel * 8 < y.chunks);
    }
  }

  template <int kPanels>
  __device__ __forceinline__ static void copy(SharedAddress to, const CUtensorMap& from, int run,
                                              int row, int h, int b, Barrier& full) {
    if (static_cast<int>(lane()) * run >= kTile) return;
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel)
      tma_load(to + panel * kPanel + lane() * run * 128, from, panel * 64, row, h, b, &full);
  }

  __device__ __forceinline__ void open_work(const Direction& d, int own, int b, int h, bool empty,
                                            bool accumulate, const TensorMaps& tensor_maps,
                                            const Sources& from) {
    memory_.own_pipeline.acquire(own_stage_);
    Barrier& full = memory_.own_pipeline.full[own_stage_.stage];
    auto& tiles = memory_.own[own_stage_.stage];
    WorkItem<kOwners>& work = memory_.work[own_stage_.stage];
    if (lane() < kOwners && warp_ == 0) work.tile[lane()] = own;
    __syncwarp();
    if (is_lane_0() && warp_ == 0) {
      work.b = b;
      work.h = h;
      work.empty = empty;
      work.end = false;
      work.accumulate = accumulate;
      work.own_order = d.own_order;
      work.masks = d.masks;
      if constexpr (M::kTma)
        full.arrive_expect_tx(sizeof(tiles));
      else
        full.arrive();
    }
    __syncwarp();
    if constexpr (!M::kTma) {
      for (int i = warp_; i < kOwners; i += kWarps) {
        int position[2];
        positions_of(position, d.own_order, __shfl_sync(0xffffffffu, own, i));
        gather<M::kXPanels, M::kOwnsY ? M::kYPanels : 0>(position, tiles[i].x,
                                                         Rows::of(from.own_x, b, h), tiles[i].y,
                                                         Rows::of(from.own_y, b, h));
      }
      full.arrive_cp_async();
    }
#pragma unroll
    for (int i = 0; i < (M::kTma ? kOwners : 0); ++i) {
      const int row = first_row(d.own_order, __shfl_sync(0xffffffffu, own, i), tensor_maps.own_run,
                                static_cast<int>(from.own_x.time));
      copy<M::kXPanels>(tiles[i].x, tensor_maps.own_x, tensor_maps.own_run, row, h, b, full);
      if constexpr (M::kOwnsY)
        copy<M::kYPanels>(tiles[i].y, tensor_maps.own_y, tensor_maps.own_run, row, h, b, full);
    }
    own_stage_.advance();
  }

  // `mask`: of the owner whose list this lane has.
  __device__ __forceinline__ void feed(int mask, bool last, const Step& step, int b, int h,
                                       const TensorMaps& tensor_maps, const Sources& from,
                                       const float* lse, const float* delta) {
    memory_.pipeline.acquire(stage_);
    Barrier& full = memory_.pipeline.full[stage_.stage];
    auto& tile = memory_.stages[stage_.stage];
    if (lane() < kOwners) write_info(&memory_.info[stage_.stage][lane()], mask, last);
    if constexpr (M::kFused) {
      if (is_lane_0()) memory_.write_turn(stage_.stage, step.tile, step.turn);
    }
    __syncwarp();
    if constexpr (M::kTma) {
      if (is_lane_0()) full.arrive_expect_tx(sizeof(tile));
      __syncwarp();
      copy<M::kXPanels>(tile.x, tensor_maps.x, tensor_maps.run, step.row, h, b, full);
      copy<M::kYPanels>(tile.y, tensor_maps.y, tensor_maps.run, step.row, h, b, full);
    } else {
      if (is_lane_0()) full.arrive();
      gather<M::kXPanels, M::kYPanels>(step.number, tile.x, Rows::of(from.x, b, h), tile.y,
                                       Rows::of(from.y, b, h));
    }
    if constexpr (M::kScalars) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = max(step.number[i], 0);
        if constexpr (M::kFused) {
          cp_async_8(shared_address(memory_.scalars[stage_.stage]) + (lane() + 32 * i) * 8,
                     lse + 2 * at, step.number[i] >= 0);
        } else {
          const unsigned row = lane() + 32 * i;
          auto& to = memory_.scalars[stage_.stage][row / 2];
          cp_async_4(shared_address(&to.lse[row % 2]), lse + at, step.number[i] >= 0);
          cp_async_4(shared_address(&to.delta[row % 2]), delta + at, step.number[i] >= 0);
        }
      }
    }
    if constexpr (M::kScalars || !M::kTma) full.arrive_cp_async();
  }

  M& memory_;
  int warp_;
  PipelineState<M::kStages> stage_;
  PipelineState<M::kOwnStages> own_stage_;
};

template <auto kSide, class M>
__device__ __forceinline__ void produce(M& memory, const AttentionMaps& maps,
                                        const AttentionPass& pass, int tiles, const Sources& from,
                                        const TensorMaps& tensor_maps) {
  if (threadIdx.x < M::kProducingWarps * 32)
    Producer<kSide, M>(memory).run(maps, pass, tiles, from, tensor_maps);
}
}  // namespace weft::attention::hopper
