// SPDX-License-Identifier: MIT
// Forward attention by mma.sync with an online softmax (Dao et al. 2022, arXiv 2205.14135,
// algorithm 1). A warp keeps the scores, probabilities and accumulators of its rows in registers.
#pragma once

#include "kernels/attention/ampere/fragments.cuh"
#include "kernels/attention/ampere/mainloop.cuh"
#include "kernels/attention/launch.cuh"

namespace weft::attention::ampere {
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// A lane has rows g = lane / 4 and g + 8 of each block of 16. exp2 is relative to `top`, at most
// kSlack (to base 2) below the largest score so far, so that accumulators are rarely rescaled; the
// quotient at the end is the same.
template <int M>
struct OnlineSoftmax {
  static constexpr float kSlack = 8;
  float scale;  // times log2(e)
  float top[M][2], sum[M][2];

  __device__ explicit OnlineSoftmax(float scale_log2)
      : scale(scale_log2) {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) top[m][half] = -INFINITY, sum[m][half] = 0;
  }

  __device__ float natural_top(int m, int half) const { return top[m][half] * scale / kLog2E; }

  template <int N, int P>
  __device__ __forceinline__ void apply(Accumulators<M, N>& s, Accumulators<M, P>& y) {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float high = s.c[m][0][2 * half];
#pragma unroll
        for (int n = 0; n < N / 8; ++n)
          high = fmaxf(high, fmaxf(s.c[m][n][2 * half], s.c[m][n][2 * half + 1]));
        high = quad_max(high);
        const bool grew = high * scale > top[m][half] * scale + kSlack;
        if (__any_sync(0xffffffffu, grew)) rescale(m, half, grew ? high : top[m][half], y);
        const float reference = top[m][half] == -INFINITY ? 0.0f : top[m][half] * scale;
#pragma unroll
        for (int n = 0; n < N / 8; ++n)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            s.c[m][n][i] = exp2_fast(fmaf(s.c[m][n][i], scale, -reference));
            sum[m][half] += s.c[m][n][i];
          }
      }
  }

 private:
  template <int P>
  __device__ __forceinline__ void rescale(int m, int half, float high, Accumulators<M, P>& y) {
    const float shrink = high == top[m][half] ? 1.0f : exp2_fast((top[m][half] - high) * scale);
    top[m][half] = high;
    sum[m][half] *= shrink;
#pragma unroll
    for (int n = 0; n < P / 8; ++n)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) y.c[m][n][i] *= shrink;
  }
};

// Stores log-sum-exps and finds the factors of rows. A pass that goes on from earlier ones sums
// over all their keys: lse = log(e^before + e^now). Nothing attended: 0 and -inf.
template <int M, class Task>
__device__ __forceinline__ void finish_softmax(RowFactors<M>& factors,
                                               const OnlineSoftmax<M>& softmax, const Task& task,
                                               int first_row, float* lse) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = quad_sum(softmax.sum[m][half]);
      const int position = task.position(first_row + m * 16 + half * 8 + (lane >> 2));
      const float now = sum == 0 ? -INFINITY : softmax.natural_top(m, half) + logf(sum),
                  before = factors.accumulate && position >= 0 ? lse[position] : -INFINITY,
                  top = fmaxf(before, now), reference = top == -INFINITY ? 0.0f : top,
                  part_before = expf(before - reference), part_now = expf(now - reference),
                  parts = part_before + part_now;
      __syncwarp();
      factors.before[m][half] = sum == 0 ? 1.0f : part_before / parts;
      factors.now[m][half] = sum == 0 ? 0.0f : part_now / (parts * sum);
      if ((lane & 3) == 0 && position >= 0)
        lse[position] = parts == 0 ? -INFINITY : top + logf(parts);
    }
}

template <int Dqk, int Dv>
struct ForwardShape {
  static constexpr bool kSmall = Dqk <= 64 && Dv <= 64;
  static constexpr int kTiles = kSmall ? 1 : 2, M = kTiles, kBlocks = kSmall ? 4 : 2;
  static constexpr int kThreads = kTiles * kTile / (16 * M) * 32;
  // keys at a time: as many as the registers hold
  static constexpr int N = Dv <= 64 ? kTile : kTile / 2;
  static constexpr bool kQueriesInRegisters = kSmall;
  using Layout = StreamLayout<kTiles, Dqk, Dv, false>;
  static constexpr int kQueries = 0, kStream = kTiles * kTile * Dqk * 2,
                       kShared = kStream + Layout::kBytes;
  static_assert(kTiles * kTile * Dv * 2 <= Layout::kBytes,
                "the output is staged where the stream was");
};

template <class T, int Dqk, int Dv>
__global__ void __launch_bounds__(ForwardShape<Dqk, Dv>::kThreads, ForwardShape<Dqk, Dv>::kBlocks)
    forward_kernel(const __grid_constant__ AttentionForward f,
                   const __grid_constant__ AttentionPass pass) {
  using Shape = ForwardShape<Dqk, Dv>;
  constexpr int M = Shape::M, N = Shape::N, kTiles = Shape::kTiles, kThreads = Shape::kThreads;
  extern __shared__ __align__(128) char shared[];
  __shared__ Task<kTiles> task;
  const BlockIndex place(f.q);
  // forward streams no delta and never reads it: lse fills its place
  if (!take_task<Direction::query_stationary>(task, place, f, pass, f.k, f.v, f.lse)) return;
  const int first_row = threadIdx.x / 32 * 16 * M, own = first_row / kTile;

  Stream<kTiles, Dqk, Dv, kThreads, false> stream(shared_address(shared) + Shape::kStream, task,
                                                  own);
  stream.begin_slots();
  const uint32_t queries = shared_address(shared) + Shape::kQueries;
  gather_rows<Dqk, kThreads, kTiles * kTile>(queries, Rows::of(f.q, place.b, place.h),
                                             [&](int row) { return task.position(row); });
  stream.begin();
  OnlineSoftmax<M> softmax(static_cast<float>(f.scale) * kLog2E);
  Accumulators<M, Dv> y;
  y.clear();
  Fragments<M, Shape::kQueriesInRegisters ? Dqk : 16> q;
  if constexpr (Shape::kQueriesInRegisters) {
    stream.wait();
    load_fragments<M, Dqk, Dqk>(q, queries, first_row / 16);
  }
  for (; !stream.done(); stream.advance()) {
    stream.arrive();
    const int mask = stream.template mask_within_segments<16 * M>(first_row);
    if (mask == kSkip) continue;
#pragma unroll 1
    for (int first = 0; first < kTile; first += N) {
      Accumulators<M, N> s;
      if constexpr (Shape::kQueriesInRegisters)
        mma_abt<T, M, N, Dqk>(s, q, stream.x(), first / 16);
      else
        mma_abt<T, M, N, Dqk>(s, queries, first_row / 16, stream.x(), first / 16);
      if (mask >= 0) apply_mask(s, stream, first_row, first, -INFINITY);
      softmax.apply(s, y);
      Fragments<M, N> p;
      round_to_fragments<T>(p, s);
      mma_ab<T, M, N, Dv>(y, p, stream.y(), first / 16);
    }
  }

  RowFactors<M> factors(0, task.accumulate);
  finish_softmax(factors, softmax, task, first_row,
                 static_cast<float*>(f.lse.data) + (place.b * f.q.heads + place.h) * f.q.time);
  __syncthreads();
  store_rows<T>(shared + Shape::kStream, y, factors, task, first_row,
                Rows::of(f.y, place.b, place.h));
}
}  // namespace weft::attention::ampere
