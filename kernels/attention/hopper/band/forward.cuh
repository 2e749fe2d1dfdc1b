// SPDX-License-Identifier: MIT
// Forward attention over a Band: a sweep that fetches every tile of q, k and v once (and some again where a
// run begins). One thread asks the copy engine for tiles, as far ahead as shared memory reaches; consumer
// warpgroups take query tiles in turn. All keys of a query tile meet it in one product before one softmax.
#pragma once

#include "kernels/attention/hopper/band/forward_memory.cuh"
#include "kernels/attention/hopper/launch.cuh"
#include "kernels/attention/hopper/softmax.cuh"

namespace weft::attention::hopper {

// Of this thread's two rows: the keys of a tile that they see, counted from its own first column.
struct SeenKeys {
  int first[2], last[2];
  __device__ __forceinline__ static SeenKeys of(const BandTiles& tiles, int back) {
    SeenKeys seen;
    const int column = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const TileRows keys = tiles.keys_of(row_of(half), back);
      seen.first[half] = keys.first - column;
      seen.last[half] = keys.last - column;
    }
    return seen;
  }
  // Of sum i of a fragment.
  __device__ __forceinline__ bool before_end(int i) const { return i / 4 * 8 + i % 2 <= last[i / 2 % 2]; }
  __device__ __forceinline__ bool after_begin(int i) const { return i / 4 * 8 + i % 2 >= first[i / 2 % 2]; }
  // What the two sums from i on are to be joined with, once they are rounded, so that those after `last`
  // remain.
  __device__ __forceinline__ std::uint32_t mask_after(int i) const {
    const int bits = (last[i / 2 % 2] + 1 - i / 4 * 8) * 16;
    return __funnelshift_lc(0, ~0u, static_cast<std::uint32_t>(max(bits, 0)));
  }
};

// Scores of queries with keys that they do not see become -inf.
__device__ __forceinline__ void hide(float (&s)[32], const BandTiles& tiles, int back) {
  const SeenKeys seen = SeenKeys::of(tiles, back);
#pragma unroll
  for (int i = 0; i < 32; ++i)
    if (!seen.before_end(i)) s[i] = -INFINITY;
  if (tiles.slot < kTile || tiles.reach < (back + 1) * kTile)
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (!seen.after_begin(i)) s[i] = -INFINITY;
}

// The largest of each of this thread's rows.
template <int kTiles>
__device__ __forceinline__ void find_top(Softmax& softmax, const float (&s)[kTiles][32]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float tops[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};  // none waits for the one before
#pragma unroll
    for (int i = 0; i < kTiles * 16; ++i)
      tops[i % 4] = fmaxf(tops[i % 4], s[i / 16][i % 16 / 2 * 4 + 2 * half + i % 2]);
    float top = fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3]));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    softmax.top[half] = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
  }
}

// Probabilities of a tile's own keys and of the farthest ones in one place: those become `far`.
__device__ __forceinline__ void split(std::uint32_t (&own)[4][4], std::uint32_t (&far)[4][4],
                                      const SeenKeys& seen) {
#pragma unroll
  for (int i = 0; i < 32; i += 2) {
    const std::uint32_t mask = seen.mask_after(i);
    far[i / 8][i % 8 / 2] = own[i / 8][i % 8 / 2] & mask;
    own[i / 8][i % 8 / 2] &= ~mask;
  }
}

// One query tile against the keys of its own stage and the kBack stages before it. A query that sees key c of
// the farthest of three tiles does not see key c of its own, as no reach is larger than 128: the scores of
// the two tiles share their registers, and their probabilities are told apart when they are rounded.
template <class T, int kBack, class Shape>
__device__ __forceinline__ void attend_band(float (&y)[Shape::Dv / 2], Softmax& softmax,
                                            const BandMemory<Shape>& memory, const BandTiles& tiles,
                                            Place<Shape::kSlots> slot, Place<Shape::kStages> own) {
  constexpr int kKept = kBack > 0 ? 2 : 1;  // tiles of scores that are kept: own and far, near
  const auto near = own.back(1), far = own.back(2);
  float s[kKept][32], distant[32];
  Owned<Shape::Dqk, false> q;
  q.load(memory.queries(slot));
  mbarrier_wait(memory.slot_full(slot), slot.parity);
  if constexpr (kBack == 2) mbarrier_wait(memory.stage_full(far), far.parity);
  if constexpr (kBack > 0) mbarrier_wait(memory.stage_full(near), near.parity);
  mbarrier_wait(memory.stage_full(own), own.parity);
  pin(s[0]);
  wgmma_fence();
  q.template mma_abt<T>(s[0], descriptor(memory.keys(own)));
  if constexpr (kBack == 2) q.template mma_abt<T>(distant, descriptor(memory.keys(far)));
  wgmma_commit_group();
  if constexpr (kBack > 0) {
    q.template mma_abt<T>(s[1], descriptor(memory.keys(near)));
    wgmma_commit_group();
  }
  wgmma_wait_group<(kBack > 0)>();
  pin(s[0]);
  SeenKeys seen;
  if constexpr (kBack == 2) {
    pin(distant);
    if (tiles.reach != 2 * kTile || tiles.skip != 0) hide(distant, tiles, 2);
    seen = SeenKeys::of(tiles, 0);
#pragma unroll
    for (int i = 0; i < 32; ++i) s[0][i] = seen.before_end(i) ? s[0][i] : distant[i];
  } else {
    hide(s[0], tiles, 0);
  }
  wgmma_wait_group<0>();
  if constexpr (kBack > 0) {
    pin(s[1]);
    if (tiles.hides(1)) hide(s[1], tiles, 1);
  }
  find_top(softmax, s);
#pragma unroll
  for (int i = kKept - 1; i >= 0; --i) softmax.apply(s[i]);
  softmax.add();

  std::uint32_t p[kKept][4][4], p_far[4][4];
#pragma unroll
  for (int i = kKept - 1; i >= 0; --i) round_to_operand<T>(p[i], s[i]);
  if constexpr (kBack == 2) split(p[0], p_far, seen);
  pin(y);
  wgmma_fence();
  mma_ab<T>(y, p[0], descriptor(memory.values(own)), 0);
  if constexpr (kBack > 0) mma_ab<T>(y, p[1], descriptor(memory.values(near)), 1);
  if constexpr (kBack == 2) mma_ab<T>(y, p_far, descriptor(memory.values(far)), 1);
  wgmma_commit_group();
  wgmma_wait_group<0>();
  pin(y);
}

// This warp's 16 rows of y, rounded, to `tile` in shared memory; kAdd: times row.now, and what is there times
// row.kept is added.
template <class T, bool kAdd, int N>
__device__ __forceinline__ void put_rows(const float (&y)[N], const Softmax::Row (&row)[2],
                                         std::uint32_t tile) {
#pragma unroll
  for (int k = 0; k < N / 8; ++k) {
    const std::uint32_t to = lane_address<64>(tile + k / 4 * kPanel, threadIdx.x % kWarpgroup / 32, k % 4);
    std::uint32_t earlier[4], sum[4];
    if constexpr (kAdd) ldmatrix(earlier, to);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Softmax::Row& of = row[i % 2];
      float low = y[8 * k + 2 * i] * of.now, high = y[8 * k + 2 * i + 1] * of.now;
      if constexpr (kAdd) {
        low = fmaf(low_half<T>(earlier[i]), of.kept, low);
        high = fmaf(high_half<T>(earlier[i]), of.kept, high);
      }
      sum[i] = pack<T>(low, high);
    }
    stmatrix(to, sum);
  }
}

// A consumer warpgroup: every kConsumers-th query tile of the block.
template <class T, class Shape>
class BandConsumer {
 public:
  using Memory = BandMemory<Shape>;
  __device__ BandConsumer(const Memory& memory, const AttentionForward& f, const BandForwardMaps& maps)
      : memory_(memory), f_(f), maps_(maps) {}

  // Its whole life.
  __device__ __forceinline__ void run() {
    take_query_tiles<Shape>(
        maps_.tiles, threadIdx.x,
        [&](const BandRun& run, int tile, auto slot, auto stage) { attend(run, tile, slot, stage); });
    tma_store_wait_group_read<0>();
  }

 private:
  __device__ __forceinline__ void attend(const BandRun& run, int tile, typename Memory::Slot slot,
                                         typename Memory::Stage stage) {
    const BandTiles& tiles = maps_.tiles;
    float* const lse = static_cast<float*>(f_.lse.data) + (run.b * f_.q.heads + run.h) * f_.q.time;
    int position[2];
    float earlier[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      position[half] = tiles.position(run.group, tile, row_of(half));
      if (Shape::kAccumulate && position[half] >= 0) earlier[half] = lse[position[half]];
    }
    float y[Shape::Dv / 2];
    Softmax softmax{maps_.scale};
    const int back = min(tile, tiles.tiles_back());
    if (back == 2)
      attend_band<T, 2>(y, softmax, memory_, tiles, slot, stage);
    else if (back == 1)
      attend_band<T, 1>(y, softmax, memory_, tiles, slot, stage);
    else
      attend_band<T, 0>(y, softmax, memory_, tiles, slot, stage);
    if (speaks()) mbarrier_arrive(memory_.done(slot));
    const Softmax::Row row[2] = {softmax.finish(0, earlier[0]), softmax.finish(1, earlier[1])};
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (threadIdx.x % 4 == 0 && position[half] >= 0) lse[position[half]] = row[half].lse;
    if constexpr (!Shape::kAccumulate) warpgroup_sync();  // y takes the place of the queries
    put_rows<T, Shape::kAccumulate>(y, row, memory_.y(slot));
    fence_proxy_async();
    __syncwarp();
    if (speaks()) {
      store_tile_rows<Shape::Dv>(maps_.y_rows, memory_.y(slot), tiles, run, tile,
                                 static_cast<int>(threadIdx.x) % kWarpgroup / 32 * 16);
      tma_store_wait_group_read<0>();
      mbarrier_arrive(memory_.free(slot));
    }
    __syncwarp();
  }
  __device__ __forceinline__ static bool speaks() { return threadIdx.x % 32 == 0; }

  const Memory& memory_;
  const AttentionForward& f_;
  const BandForwardMaps& maps_;
};

template <class T, int Dqk, int Dv, bool kAccumulate>
__global__ void __launch_bounds__(BandForwardShape<Dqk, Dv, kAccumulate>::kThreads, 1)
    band_forward_kernel(const __grid_constant__ AttentionForward f,
                        const __grid_constant__ BandForwardMaps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Shape = BandForwardShape<Dqk, Dv, kAccumulate>;
  extern __shared__ __align__(128) char shared[];
  const auto memory = BandMemory<Shape>::of(shared);
  if (threadIdx.x == 0) prefetch(maps.q), prefetch(maps.k), prefetch(maps.v), prefetch(maps.y_rows);
  memory.init();
  if (threadIdx.x < kWarpgroup) {
    setmaxnreg_dec<Shape::kProducerRegisters>();
    char* const last_users = shared + (memory.base - shared_address(shared)) + Shape::kLastUsers;
    if (threadIdx.x == 0) produce_band(memory, maps, reinterpret_cast<int*>(last_users));
  } else {
    setmaxnreg_inc<Shape::kConsumerRegisters>();
    BandConsumer<T, Shape>(memory, f, maps).run();
  }
#endif
}

template <class T>
void launch_band_forward(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  BandForwardMaps maps = BandForwardMaps::of(f, pass);
  // A tile that is fetched again but not written costs about half as much as others.
  maps.tiles.cut(multiprocessors(), 0.5 * maps.tiles.tiles_back());
  with_head_sizes(f.q.size, f.v.size, [&]<int Dqk, int Dv>() {
    const auto launch = [&]<bool kAccumulate>() {
      using Shape = BandForwardShape<Dqk, Dv, kAccumulate>;
      start(queue, band_forward_kernel<T, Dqk, Dv, kAccumulate>, maps.tiles.units(), Shape::kThreads,
            Shape::kBytes, f, maps);
    };
    pass.accumulate ? launch.template operator()<true>() : launch.template operator()<false>();
  });
}

}  // namespace weft::attention::hopper
