// SPDX-License-Identifier: MIT
// Backward attention on Hopper over a TileMap as two kernels. Here is the query-stationary one: dQ,
// and delta for the key-stationary one (key_stationary.cuh). The MMAs that end an iteration overlap
// the exp2 of the next.
#include "kernels/attention/hopper/epilogue.cuh"
#include "kernels/attention/hopper/key_stationary.cuh"
#include "kernels/attention/hopper/launch.cuh"
#include "kernels/attention/hopper/masks.cuh"
#include "kernels/attention/hopper/producer.cuh"

namespace weft::attention::hopper {
template <int Dqk, int Dv, bool kTma>
struct QueryStationaryShape {
  static constexpr int kOwners = Dqk == 128 ? 2 : 3;  // as the registers allow
  static constexpr int kStages = Dqk == 128 ? 4 : Dv == 128 ? 5 : 6, kOwnStages = Dv == 128 ? 1 : 2;
  using M = Memory<kOwners, Dqk, Dv, true, false, kStages, kOwnStages, kTma>;
  static constexpr RegisterSplit kRegisters = {
      .producer = !kTma          ? 56
                  : kOwners == 3 ? 32
                                 : 40,
      .consumer = kOwners == 3 ? (kTma ? 160 : 152) : (kTma ? 232 : 224),
  };
};

// lse (to base 2) and delta of this thread's rows.
struct QueryScalars {
  float lse[2], delta[2];

  // Computes delta from y and the stationary dy, and leaves it in g.delta for the other kernel.
  template <class T, int Dv>
  __device__ __forceinline__ void load(const AttentionBackward& g, int b, int h,
                                       const int (&position)[2], SharedAddress dy) {
    const int64_t first = (b * g.q.heads + h) * g.q.time;
    const Rows y = Rows::of(g.y, b, h);
    uint4 of_y[2][Dv / 32];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = position[half];
      lse[half] = t < 0 ? 0.0f : static_cast<const float*>(g.lse.data)[first + t] * kLog2E;
#pragma unroll
      for (int i = 0; i < Dv / 32; ++i) {
        const uint32_t chunk = threadIdx.x % 4 + 4 * i;
        of_y[half][i] = t >= 0 && chunk < y.chunks
                            ? __ldg(reinterpret_cast<const uint4*>(y.at(t, chunk)))
                            : make_uint4(0, 0, 0, 0);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = position[half], row = row_of(half);
      float sum = 0;
#pragma unroll
      for (int i = 0; i < Dv / 32; ++i) {
        const uint32_t chunk = threadIdx.x % 4 + 4 * i;
        const uint4 of_dy =
            ld_shared_16(dy + chunk / 8 * kPanel + row * 128 + ((chunk ^ row) % 8 << 4));
        sum += add_dot<T>(0, of_y[half][i], of_dy);
      }
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      delta[half] = sum;
      if (t >= 0 && threadIdx.x % 4 == 0) static_cast<float*>(g.delta.data)[first + t] = sum;
    }
  }

  // Scores and dP into dS; kMasked: where `words` allow it.
  template <bool kMasked>
  __device__ __forceinline__ void differentiate(float (&dp)[32], const float (&s)[32], float scale,
                                                const MaskWords& words) const {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int half = i / 2 % 2;
      float p = exp2_fast(fmaf(s[i], scale, -lse[half]));
      if (kMasked && !words.at(half, i / 4, i % 2)) p = 0;
      dp[i] = p * (dp[i] - delta[half]);
    }
  }
};

template <class T, int Dqk>
struct QueryAccumulators {
  float dq[Dqk / 2], s[32], ds[32], scale;
  uint32_t ds_operand[4][4];
  MaskWords words;

  __device__ __forceinline__ explicit QueryAccumulators(float scale_log2)
      : scale(scale_log2) {
#pragma unroll
    for (int i = 0; i < Dqk / 2; ++i) dq[i] = 0;
  }

  template <class M, class Q, class Dy>
  __device__ __forceinline__ void issue_scores(const M& memory, int stage, const Q& q,
                                               const Dy& dy) {
    pin(s), pin(ds);
    wgmma_fence();
    q.template mma_abt<T>(s, descriptor(memory.stages[stage].x));
    dy.template mma_abt<T>(ds, descriptor(memory.stages[stage].y));
    wgmma_commit_group();
  }

  __device__ __forceinline__ void issue_queries(SharedAddress x) {
    pin(dq);
    wgmma_fence();
    mma_ab<T>(dq, ds_operand, descriptor(x), 1);
    wgmma_commit_group();
  }

  __device__ __forceinline__ void differentiate(const QueryScalars& scalars, int mask) {
    pin(s), pin(ds);
    if (mask >= 0)
      scalars.differentiate<true>(ds, s, scale, words);
    else
      scalars.differentiate<false>(ds, s, scale, words);
    pin(ds);
  }
};

template <class T, int Dqk, class M, class Q, class Dy>
__device__ __forceinline__ void query_stationary_mainloop(QueryAccumulators<T, Dqk>& acc,
                                                          Consumer<M>& stream, const M& memory,
                                                          const uint64_t* masks, const Q& q,
                                                          const Dy& dy,
                                                          const QueryScalars& scalars) {
  int mask = stream.next();
  // Waits for the next iteration early: that is hidden behind the MMAs.
  const auto look_ahead = [&] {
    if (mask >= 0) acc.words.load(masks, mask);
    return stream.step();
  };
  while (mask != kEnd) {
    acc.issue_scores(memory, stream.stage(), q, dy);
    int following = look_ahead();
    wgmma_wait_group<0>();
    acc.differentiate(scalars, mask);
    round_to_operand<T>(acc.ds_operand, acc.ds);
    while (is_tile(mask = following)) {
      const int stage = stream.stage(), before = stream.stage_before();
      acc.issue_scores(memory, stage, q, dy);
      acc.issue_queries(memory.stages[before].x);
      following = look_ahead();
      wgmma_wait_group<1>();
      acc.differentiate(scalars, mask);
      wgmma_wait_group<0>();
      pin(acc.dq);
      stream.release(before);
      round_to_operand<T>(acc.ds_operand, acc.ds);
    }
    const int last = stream.last_tile(mask);
    acc.issue_queries(memory.stages[last].x);
    wgmma_wait_group<0>();
    pin(acc.dq);
    stream.release(last);
    if (mask == kSkip) mask = stream.next();
  }
}

template <class T, int Dqk, int Dv, bool kTma>
__device__ __forceinline__ void consume_query_stationary(
    typename QueryStationaryShape<Dqk, Dv, kTma>::M& memory, const AttentionBackward& g) {
  using M = typename QueryStationaryShape<Dqk, Dv, kTma>::M;
  Consumer<M> stream(memory);
  const auto scale = static_cast<float>(g.scale);
  for (;;) {
    const auto& work = stream.take_work();
    if (warp_uniform(work.end)) break;
    const int position[2] = {position_of(work, stream.own(), 0),
                             position_of(work, stream.own(), 1)};
    if (work.accumulate) prefetch_rows(position, Rows::of(g.dq, work.b, work.h));
    const uint64_t* const masks = work.masks;
    QueryScalars scalars;
    scalars.load<T, Dv>(g, work.b, work.h, position, stream.own_tile().y);
    Owned<Dqk, false> q;
    Owned<Dv, false> dy;
    q.load(stream.own_tile().x);
    dy.load(stream.own_tile().y);
    QueryAccumulators<T, Dqk> acc(scale * kLog2E);
    query_stationary_mainloop(acc, stream, memory, masks, q, dy, scalars);
    const Rows out = Rows::of(g.dq, work.b, work.h);
    const bool accumulate = work.accumulate;
    stream.release_work();
    accumulate ? store_rows<T>(acc.dq, scale, true, position, out)
               : store_rows<T>(acc.dq, scale, false, position, out);
  }
}

template <class T, int Dqk, int Dv, bool kTma>
struct QueryStationaryKernel {
  using Shape = QueryStationaryShape<Dqk, Dv, kTma>;
  using SharedStorage = typename Shape::M;
  static constexpr int kThreads = SharedStorage::kThreads;
  static constexpr RegisterSplit kRegisters = Shape::kRegisters;

  __device__ __forceinline__ static void init(SharedStorage& memory, const auto&...) {
    memory.init();
  }

  __device__ __forceinline__ static void produce(SharedStorage& memory, const AttentionBackward& g,
                                                 const AttentionPass& pass,
                                                 const TensorMaps& tensor_maps) {
    hopper::produce<Direction::query_stationary>(
        memory, g.maps, pass, pass.query_tiles, {g.q, g.dy, g.k, g.v, g.lse, g.delta}, tensor_maps);
  }

  __device__ __forceinline__ static void consume(SharedStorage& memory, const AttentionBackward& g,
                                                 const auto&...) {
    consume_query_stationary<T, Dqk, Dv, kTma>(memory, g);
  }
};

// The memory map of README.md.
static_assert(sizeof(QueryStationaryShape<64, 64, true>::M) == 196'912);
static_assert(sizeof(QueryStationaryShape<64, 128, true>::M) == 196'832);
static_assert(sizeof(QueryStationaryShape<128, 128, true>::M) == 196'800);

void launch_backward(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass) {
  with_head_sizes(g, [&]<class T, int Dqk, int Dv>() {
    TensorMaps by_rows{}, by_columns{};
    const bool rows = describe(by_rows, pass.query_run, g.q, g.dy, pass.key_run, g.k, g.v),
               columns = describe(by_columns, pass.key_run, g.k, g.v, pass.query_run, g.q, g.dy);
    with_bool(rows && columns, [&]<bool kTma>() {
      using ByRows = QueryStationaryKernel<T, Dqk, Dv, kTma>;
      using ByColumns = KeyStationaryKernel<T, Dqk, Dv, kTma>;
      launch_persistent<ByRows>(queue,
                                blocks_for(g.q, pass.query_tiles, ByRows::SharedStorage::kOwners),
                                g, pass, by_rows);
      launch_persistent<ByColumns>(
          queue, blocks_for(g.q, pass.key_tiles, ByColumns::SharedStorage::kOwners), g, pass,
          by_columns);
    });
  });
}
}  // namespace weft::attention::hopper
