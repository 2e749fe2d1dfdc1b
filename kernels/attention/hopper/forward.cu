// SPDX-License-Identifier: MIT
// Forward attention on Hopper over a TileMap. A consumer warpgroup owns 64 query rows. Its online
// softmax of a tile overlaps P V of the tile before, and the MMAs of other warpgroups (Shah et al.
// 2024, arXiv 2407.08608, section 3).
#include "kernels/attention/hopper/forward_mainloop.cuh"
#include "kernels/attention/hopper/launch.cuh"
#include "kernels/attention/hopper/launchers.h"
#include "kernels/attention/hopper/producer.cuh"

namespace weft::attention::hopper {
template <int Dqk, int Dv, bool kTma>
struct ForwardShape {
  // As the registers allow: 504 a lane are shared by 3 warpgroups, 512 by 4, 480 by 5. At heads of
  // 64 a fourth consumer gives more than queries in registers. At heads of 128 two consumers with
  // queries in registers take 0.280 ms for `all` (B 32, H 2, n 3,072), three without 0.335.
  static constexpr bool kFour = Dqk == 64 && Dv == 64, kTwo = Dqk == 128 && kTma;
  static constexpr int kOwners = kFour ? 4 : kTwo ? 2 : 3;
  // forward_iteration_interleaved(): `all`, B 32, H 2, n 3,072, takes 358 instead of 370 thousand
  // cycles. Heads of 64 (n 12,288) would take 1,872 instead of 1,856, heads of 128 453 instead of
  // 451.
  static constexpr bool kInterleaved = Dqk == 64 && Dv == 128 && kTma;
  static constexpr bool kQueriesInRegisters = kTwo || (Dqk == 64 && Dv == 64 && !kFour);
  static constexpr int kStages = kTwo ? 5 : Dqk == 128 ? 3 : Dv == 128 ? 4 : kTma ? 6 : 8;
  using M = Memory<kOwners, Dqk, Dv, false, false, kStages, 2, kTma>;
  static constexpr int kProducerRegisters = kTwo            ? 40
                                            : kTma || kFour ? 32
                                                            : 56,
                       kConsumerRegisters = kFour  ? 112
                                            : kTwo ? 232
                                            : kTma ? 160
                                                   : 152;
};

// Goes on from y and lse that earlier passes left in this thread's rows.
template <class T, int Dv>
__device__ __forceinline__ void resume(ForwardAccumulators<T, Dv>& acc, const AttentionForward& f,
                                       int b, int h, const int (&position)[2]) {
  const auto* lse = static_cast<const float*>(f.lse.data) + (b * f.q.heads + h) * f.q.time;
  const Rows y = Rows::of(f.y, b, h);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (position[half] < 0) continue;
    acc.softmax.resume(half, lse[position[half]]);
#pragma unroll
    for (int j = 0; j < Dv / 8; ++j) {
      if (j >= static_cast<int>(y.chunks)) break;
      const auto pair =
          *reinterpret_cast<const uint32_t*>(y.at(position[half], j) + threadIdx.x % 4 * 4);
      acc.y[4 * j + 2 * half] = low_half<T>(pair);
      acc.y[4 * j + 2 * half + 1] = high_half<T>(pair);
    }
  }
}

// y and lse of one of this thread's rows.
template <class T, int kHalf, int N>
__device__ __forceinline__ void store_forward(const AttentionForward& f, const Softmax& softmax,
                                              const float (&y)[N], int b, int h, int position) {
  const Softmax::Row row = softmax.finish(kHalf, -INFINITY);
  if (threadIdx.x % 4 == 0 && position >= 0)
    static_cast<float*>(f.lse.data)[(b * f.q.heads + h) * f.q.time + position] = row.lse;
  store_row<T, kHalf>(y, row.now, false, 0, position, Rows::of(f.y, b, h));
}

template <class T, int Dqk, int Dv, bool kTma>
__device__ __forceinline__ void consume_forward(
    const typename ForwardShape<Dqk, Dv, kTma>::M& memory, char* shared, const AttentionForward& f,
    int tiles) {
  using Shape = ForwardShape<Dqk, Dv, kTma>;
  using M = typename Shape::M;
  Consumer<M> stream(memory, shared);
  for (TileScheduler scheduler(f.q, tiles, M::kOwners); scheduler.next();) {
    const auto& work = stream.take_work();
    Owned<Dqk, Shape::kQueriesInRegisters> q;
    q.load(stream.own_x());
    ForwardAccumulators<T, Dv> acc(static_cast<float>(f.scale) * kLog2E);
    {
      const int position[2] = {position_of(work, stream.own(), 0),
                               position_of(work, stream.own(), 1)};
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (position[half] < 0) acc.softmax.leave_out(half);
      if (work.accumulate) resume(acc, f, work.b, work.h, position);
    }
    forward_mainloop<T, Shape::kInterleaved>(acc, stream, memory, work.masks, q);
    // Positions are looked up once more: that takes no registers from the mainloop.
    const int position[2] = {position_of(work, stream.own(), 0),
                             position_of(work, stream.own(), 1)},
              b = work.b, h = work.h;
    stream.release_work();
    store_forward<T, 0>(f, acc.softmax, acc.y, b, h, position[0]);
    store_forward<T, 1>(f, acc.softmax, acc.y, b, h, position[1]);
  }
}

template <class T, int Dqk, int Dv, bool kTma>
__global__ void __launch_bounds__(ForwardShape<Dqk, Dv, kTma>::M::kThreads, 1)
    forward_kernel(const __grid_constant__ AttentionForward f,
                   const __grid_constant__ AttentionPass pass,
                   const __grid_constant__ TensorMaps tensor_maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Shape = ForwardShape<Dqk, Dv, kTma>;
  extern __shared__ __align__(128) char shared[];
  const auto memory = Shape::M::of(shared);
  memory.init();
  if (threadIdx.x < kWarpgroup) {
    setmaxnreg_dec<Shape::kProducerRegisters>();
    produce<Direction::query_stationary>(memory, shared, f.maps, pass, pass.query_tiles,
                                         {f.q, f.v, f.k, f.v, f.lse, f.lse}, tensor_maps);
  } else {
    setmaxnreg_inc<Shape::kConsumerRegisters>();
    consume_forward<T, Dqk, Dv, kTma>(memory, shared, f, pass.query_tiles);
  }
#endif
}

void launch_forward(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  with_head_sizes(f, [&]<class T, int Dqk, int Dv>() {
    TensorMaps tensor_maps{};
    with_bool(describe(tensor_maps, pass.query_run, f.q, f.q, pass.key_run, f.k, f.v),
              [&]<bool kTma>() {
                using M = typename ForwardShape<Dqk, Dv, kTma>::M;
                start(queue, forward_kernel<T, Dqk, Dv, kTma>,
                      blocks_for(f.q, pass.query_tiles, M::kOwners), M::kThreads, M::kBytes, f,
                      pass, tensor_maps);
              });
  });
}
}  // namespace weft::attention::hopper
