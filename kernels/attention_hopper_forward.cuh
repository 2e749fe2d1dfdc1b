// SPDX-License-Identifier: MIT
// Forward attention on Hopper: a consumer warpgroup owns 64 query rows and walks their key tiles with an
// online softmax in powers of two (Dao et al. 2022, arXiv 2205.14135, algorithm 1). While it turns one tile
// of scores into probabilities, the product of the last tile's with its values runs, and the products of the
// other warpgroups (Shah et al. 2024, arXiv 2407.08608, section 3).
#pragma once

#include "kernels/attention_hopper_fragments.cuh"
#include "kernels/attention_hopper_launch.cuh"
#include "kernels/attention_hopper_producer.cuh"

namespace weft::attention::hopper {

template <int Dqk, int Dv>
struct ForwardShape {
  // As the registers allow: 512 a lane are shared by 4 warpgroups, 504 by 3.
  static constexpr int kOwners = 3;
  // kOverlaps: the sums of a step run beside the probabilities of the next one, which need registers of their
  // own.
  static constexpr bool kQueriesInRegisters = Dqk == 64 && Dv == 64, kOverlaps = Dv == 64;
  static constexpr int kStages = Dqk == 128 ? 3 : Dv == 128 ? 4 : 6;
  using M = Memory<kOwners, Dqk, Dv, false, false, kStages, 2>;
  static constexpr int kProducerRegisters = 56, kConsumerRegisters = 152;
};

// Of this thread's two rows. `top` is the reference of the powers: a score that was the largest once. It
// moves only when the probabilities of a tile add up to more than kLimit, so that sums are rarely rescaled;
// the quotient at the end is the same.
struct Softmax {
  static constexpr float kLimit = 4096;  // far below what f16 holds
  float scale;                           // to powers of two
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  float shrink[2] = {1, 1};  // what older sums are to be multiplied by, if apply() says so

  // Scores into probabilities relative to `top`, rounded; true: `top` of a row of this warp has moved.
  template <class T>
  __device__ __forceinline__ bool apply(std::uint32_t (&p)[4][4], const float (&s)[32]) {
    float here[2];
    exponentiate<T>(p, here, s);
    // A row that has seen no key yet has no reference: its first scores may be so low that their powers
    // vanish.
    const bool none = top[0] == -INFINITY || top[1] == -INFINITY;
    const bool moved = __any_sync(0xffffffffu, none || !(here[0] <= kLimit) || !(here[1] <= kLimit));
    if (moved) {
      move(s);
      exponentiate<T>(p, here, s);
    }
    sum[0] += here[0];
    sum[1] += here[1];
    return moved;
  }
  // The same for a tile that surely moves `top`: the first of a walk.
  template <class T>
  __device__ __forceinline__ void begin(std::uint32_t (&p)[4][4], const float (&s)[32]) {
    float here[2];
    move(s);
    exponentiate<T>(p, here, s);
    sum[0] += here[0];
    sum[1] += here[1];
  }
  template <int N>
  __device__ __forceinline__ void rescale(float (&y)[N]) const {
#pragma unroll
    for (int i = 0; i < N; ++i) y[i] *= shrink[i / 2 % 2];
  }

 private:
  template <class T>
  __device__ __forceinline__ void exponentiate(std::uint32_t (&p)[4][4], float (&here)[2],
                                               const float (&s)[32]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float reference = top[half] == -INFINITY ? 0.0f : top[half] * scale;
      here[half] = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float low = exp2_fast(fmaf(s[4 * j + 2 * half], scale, -reference)),
                    high = exp2_fast(fmaf(s[4 * j + 2 * half + 1], scale, -reference));
        here[half] += low;
        here[half] += high;
        p[j / 2][j % 2 * 2 + half] = pack<T>(low, high);
      }
    }
  }
  __device__ __forceinline__ void move(const float (&s)[32]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float x = top[half];
#pragma unroll
      for (int j = 0; j < 8; ++j) x = fmaxf(x, fmaxf(s[4 * j + 2 * half], s[4 * j + 2 * half + 1]));
      x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
      x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
      shrink[half] = x == top[half] ? 1.0f : exp2_fast((top[half] - x) * scale);
      sum[half] *= shrink[half];
      top[half] = x;
    }
  }
};

// y and lse of one of this thread's rows, added to what earlier passes left where the map says so.
template <class T, int kHalf, int N>
__device__ __forceinline__ void store_forward(const AttentionForward& f, const Softmax& softmax,
                                              const float (&y)[N], int b, int h, bool accumulate,
                                              int position) {
  float* lse = static_cast<float*>(f.lse.data) + (b * f.q.heads + h) * f.q.time;
  float sum = softmax.sum[kHalf];
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  float factor = sum == 0 ? 0.0f : 1.0f / sum, kept = 0,
        total = sum == 0 ? -INFINITY : softmax.top[kHalf] * static_cast<float>(f.scale) + logf(sum);
  if (accumulate && position >= 0) {
    const float before = lse[position], here = total, top = fmaxf(before, here);
    if (top != -INFINITY) {
      const float both = exp2_fast((before - top) * kLog2E) + exp2_fast((here - top) * kLog2E);
      total = top + logf(both);
      kept = exp2_fast((before - total) * kLog2E);
      factor *= exp2_fast((here - total) * kLog2E);
    }
  }
  __syncwarp();  // every lane of a quad has read lse
  if (threadIdx.x % 4 == 0 && position >= 0) lse[position] = total;
  store_row<T, kHalf>(y, factor, accumulate, kept, position, Rows::of(f.y, b, h));
}

// Sums of a consumer, and what is done to them between waits.
template <class T, int Dv>
struct ForwardSums {
  float y[Dv / 2], s[32];
  MaskWords words;
  Softmax softmax;

  __device__ __forceinline__ explicit ForwardSums(float scale_log2) : softmax{scale_log2} {
#pragma unroll
    for (int i = 0; i < Dv / 2; ++i) y[i] = 0;
  }
  template <class Q>
  __device__ __forceinline__ void start_scores(const Q& q, std::uint32_t keys) {
    pin(s), pin(y);
    begin_products();
    q.template start_product<T>(s, keys);
    commit_products();
  }
  __device__ __forceinline__ void start_values(const std::uint32_t (&p)[4][4], std::uint32_t values) {
    start_sums<T>(y, p, descriptor(values));
    commit_products();
  }
  // Once the scores are there.
  __device__ __forceinline__ void hide(int mask) {
    pin(s);
    if (mask >= 0) words.apply(s, -INFINITY);
  }
};

// kOverlaps: the values of a step are added beside the probabilities of the next one, which need registers of
// their own.
template <bool kOverlaps, class T, int Dv, class M, class Q>
__device__ __forceinline__ void walk_forward(ForwardSums<T, Dv>& sums, Consumer<M>& stream, const M& memory,
                                             const std::uint64_t* masks, const Q& q) {
  std::uint32_t even[4][4], odd[4][4];  // probabilities
  int mask = stream.next(), stage = 0;
  const auto step = [&](const std::uint32_t(&last)[4][4], std::uint32_t(&p)[4][4]) {
    const int before = stage;
    stage = stream.stage();
    sums.start_scores(q, memory.x(stage));
    sums.start_values(last, memory.y(before));
    if (mask >= 0) sums.words.load(masks, mask);
    wait_for_products<kOverlaps ? 1 : 0>();
    sums.hide(mask);
    const bool moved = sums.softmax.template apply<T>(p, sums.s);
    pin(p);
    wait_for_products<0>();
    pin(sums.y);
    stream.release(before);
    if (moved) sums.softmax.rescale(sums.y);
    mask = stream.step();
  };
  const auto finish = [&](const std::uint32_t(&last)[4][4]) {
    pin(sums.y);
    begin_products();
    sums.start_values(last, memory.y(stage));
    wait_for_products<0>();
    pin(sums.y);
    stream.release(stage);
  };
  while (mask != kEnd) {
    stage = stream.stage();
    sums.start_scores(q, memory.x(stage));
    if (mask >= 0) sums.words.load(masks, mask);
    wait_for_products<0>();
    sums.hide(mask);
    sums.softmax.template begin<T>(even, sums.s);
    sums.softmax.rescale(sums.y);
    mask = stream.step();
    for (;;) {
      if (!is_tile(mask)) {
        finish(even);
        break;
      }
      if constexpr (!kOverlaps) {
        step(even, even);
        continue;
      }
      step(even, odd);
      if (!is_tile(mask)) {
        finish(odd);
        break;
      }
      step(odd, even);
    }
    if (mask == kSkip) mask = stream.next();
  }
}

template <class T, int Dqk, int Dv>
__device__ __forceinline__ void consume_forward(const typename ForwardShape<Dqk, Dv>::M& memory, char* shared,
                                                const AttentionForward& f, int tiles) {
  using Shape = ForwardShape<Dqk, Dv>;
  using M = typename Shape::M;
  Consumer<M> stream(memory, shared);
  for (Tasks tasks(f.q, tiles, M::kOwners); tasks.next();) {
    const auto& work = stream.take_task();
    const int position[2] = {position_of(work, stream.own(), 0), position_of(work, stream.own(), 1)},
              b = work.b, h = work.h;
    const bool accumulate = work.accumulate;
    const std::uint64_t* const masks = work.masks;
    Owned<Dqk, Shape::kQueriesInRegisters> q;
    q.load(stream.own_x());
    show_to_products();
    if constexpr (Shape::kQueriesInRegisters) stream.release_task();
    ForwardSums<T, Dv> sums(static_cast<float>(f.scale) * kLog2E);
    walk_forward<Shape::kOverlaps>(sums, stream, memory, masks, q);
    if constexpr (!Shape::kQueriesInRegisters) stream.release_task();
    store_forward<T, 0>(f, sums.softmax, sums.y, b, h, accumulate, position[0]);
    store_forward<T, 1>(f, sums.softmax, sums.y, b, h, accumulate, position[1]);
  }
}

template <class T, int Dqk, int Dv>
__global__ void __launch_bounds__(ForwardShape<Dqk, Dv>::M::kThreads, 1)
    forward_kernel(const __grid_constant__ AttentionForward f, const __grid_constant__ AttentionPass pass) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Shape = ForwardShape<Dqk, Dv>;
  extern __shared__ __align__(128) char shared[];
  const auto memory = Shape::M::of(shared);
  memory.init();
  if (threadIdx.x < kWarpgroup) {
    give_registers<Shape::kProducerRegisters>();
    Producer<Direction::rows, typename Shape::M>(memory, shared)
        .run(f.maps, pass, pass.query_tiles, {f.q, f.v, f.k, f.v, f.lse, f.lse});
  } else {
    take_registers<Shape::kConsumerRegisters>();
    consume_forward<T, Dqk, Dv>(memory, shared, f, pass.query_tiles);
  }
#endif
}

template <class T>
void launch_forward(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  with_head_sizes(f.q.size, f.v.size, [&]<int Dqk, int Dv>() {
    using M = typename ForwardShape<Dqk, Dv>::M;
    start(queue, forward_kernel<T, Dqk, Dv>, tasks_of(f.q, pass.query_tiles, M::kOwners), M::kThreads,
          M::kBytes, f, pass);
  });
}

}  // namespace weft::attention::hopper
