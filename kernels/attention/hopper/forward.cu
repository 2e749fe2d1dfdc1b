// SPDX-License-Identifier: MIT
// Forward attention on Hopper over a TileMap. A consumer warpgroup owns 64 query rows. Its online
// softmax of a tile overlaps P V of the tile before, and the MMAs of other warpgroups (Shah et al.
// 2024, arXiv 2407.08608, section 3).
#include "kernels/attention/hopper/epilogue.cuh"
#include "kernels/attention/hopper/forward_mainloop.cuh"
#include "kernels/attention/hopper/launch.cuh"
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
  static constexpr RegisterSplit kRegisters = {
      .producer = kTwo            ? 40
                  : kTma || kFour ? 32
                                  : 56,
      .consumer = kFour  ? 112
                  : kTwo ? 232
                  : kTma ? 160
                         : 152,
  };
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
__device__ __forceinline__ void consume_forward(typename ForwardShape<Dqk, Dv, kTma>::M& memory,
                                                const AttentionForward& f, int tiles,
                                                int together) {
  using Shape = ForwardShape<Dqk, Dv, kTma>;
  using M = typename Shape::M;
  Consumer<M> stream(memory);
  for (TileScheduler scheduler(f.q, tiles, M::kOwners, together); scheduler.next();) {
    const auto& work = stream.take_work();
    Owned<Dqk, Shape::kQueriesInRegisters> q;
    q.load(stream.own_tile().x);
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
struct ForwardKernel {
  using Shape = ForwardShape<Dqk, Dv, kTma>;
  using SharedStorage = typename Shape::M;
  static constexpr int kThreads = SharedStorage::kThreads;
  static constexpr RegisterSplit kRegisters = Shape::kRegisters;

  __device__ __forceinline__ static void init(SharedStorage& memory, const auto&...) {
    memory.init();
  }

  __device__ __forceinline__ static void produce(SharedStorage& memory, const AttentionForward& f,
                                                 const AttentionPass& pass,
                                                 const TensorMaps& tensor_maps) {
    hopper::produce<Direction::query_stationary>(memory, f.maps, pass, pass.query_tiles,
                                                 {f.q, f.v, f.k, f.v, f.lse, f.lse}, tensor_maps);
  }

  __device__ __forceinline__ static void consume(SharedStorage& memory, const AttentionForward& f,
                                                 const AttentionPass& pass,
                                                 const TensorMaps& tensor_maps) {
    consume_forward<T, Dqk, Dv, kTma>(memory, f, pass.query_tiles, tensor_maps.together);
  }
};

// The memory map of README.md.
static_assert(sizeof(ForwardShape<64, 64, true>::M) == 164'160);
static_assert(sizeof(ForwardShape<64, 128, true>::M) == 147'696);
static_assert(sizeof(ForwardShape<128, 128, true>::M) == 229'648);

void launch_forward(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  with_head_sizes(f, [&]<class T, int Dqk, int Dv>() {
    TensorMaps tensor_maps{};
    const bool described = describe(tensor_maps, pass.query_run, f.q, f.q, pass.key_run, f.k, f.v);
    with_bool(described, [&]<bool kTma>() {
      using Kernel = ForwardKernel<T, Dqk, Dv, kTma>;
      launch_persistent<Kernel>(queue,
                                blocks_for(f.q, pass.query_tiles, Kernel::SharedStorage::kOwners),
                                f, pass, tensor_maps);
    });
  });
}
}  // namespace weft::attention::hopper
