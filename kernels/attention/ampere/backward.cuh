// SPDX-License-Identifier: MIT
// Backward attention by mma.sync, in two kernels without atomics: query-stationary for dQ;
// key-stationary for dK and dV, transposed (rows are keys), so that P^T and dS^T are A operands in
// registers.
#pragma once

#include "kernels/attention/ampere/fragments.cuh"
#include "kernels/attention/ampere/mainloop.cuh"
#include "kernels/attention/launch.cuh"

namespace weft::attention::ampere {
// How a block is cut up: kTiles owned tiles, warps of M blocks of 16 rows, N columns of scores at a
// time. That fits the registers and the 99 KiB of smaller GPUs, and several blocks share a
// multiprocessor.
template <int Dqk, int Dv>
struct BackwardShape {
  static constexpr int kLarger = Dqk > Dv ? Dqk : Dv;
  static constexpr bool kSmall = kLarger <= 64;
  static constexpr int kTiles = 1, M = 1, N = kLarger == 64 ? 64 : 32;
  static constexpr int kBlocks = kLarger <= 32 ? 4 : kLarger <= 64 ? 3 : 2;
  static constexpr int kThreads = kTiles * kTile / (16 * M) * 32;
};

// Shared memory: the owned x and y, then the stream. kScalars: lse and delta stream by, too.
template <int Dqk, int Dv, bool kScalars>
struct BackwardMemory {
  static constexpr int kTiles = BackwardShape<Dqk, Dv>::kTiles;
  using Layout = StreamLayout<kTiles, Dqk, Dv, kScalars>;
  static constexpr int kY = kTiles * kTile * Dqk * 2, kStream = kY + kTiles * kTile * Dv * 2,
                       kBytes = kStream + Layout::kBytes;
  static_assert(kTiles * kTile * (Dqk > Dv ? Dqk : Dv) * 2 <= Layout::kBytes,
                "outputs are staged in the stream");
};

// ---- dQ ----

// lse (to base 2) and delta of a warp's rows g and g + 8.
template <int M, class Task>
__device__ __forceinline__ void load_scalars(float (&lse)[M][2], float (&delta)[M][2],
                                             const Task& task, int first_row) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = task.position(first_row + m * 16 + half * 8 + threadIdx.x % 32 / 4);
      lse[m][half] = t < 0 ? 0.0f : task.lse[t] * kLog2E;
      delta[m][half] = t < 0 ? 0.0f : task.delta[t];
    }
}

// dP into dS.
template <int M, int N>
__device__ __forceinline__ void score_gradients(Accumulators<M, N>& ds, const Accumulators<M, N>& s,
                                                float scale, const float (&lse)[M][2],
                                                const float (&delta)[M][2]) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        ds.c[m][n][i] = exp2_fast(fmaf(s.c[m][n][i], scale, -lse[m][i / 2])) *
                        (ds.c[m][n][i] - delta[m][i / 2]);
}

template <class T, int Dqk, int Dv>
__global__ void __launch_bounds__(BackwardShape<Dqk, Dv>::kThreads, BackwardShape<Dqk, Dv>::kBlocks)
    query_stationary_kernel(const __grid_constant__ AttentionBackward g,
                            const __grid_constant__ AttentionPass pass) {
  using Shape = BackwardShape<Dqk, Dv>;
  using Memory = BackwardMemory<Dqk, Dv, false>;
  constexpr int M = Shape::M, N = Shape::N, kTiles = Shape::kTiles, kThreads = Shape::kThreads;
  extern __shared__ __align__(128) char shared[];
  __shared__ Task<kTiles> task;
  const BlockIndex place(g.q);
  if (!take_task<Direction::query_stationary>(task, place, g, pass, g.k, g.v, g.delta)) return;
  const int first_row = threadIdx.x / 32 * 16 * M, own = first_row / kTile;

  const uint32_t queries = shared_address(shared), gradients = queries + Memory::kY;
  Stream<kTiles, Dqk, Dv, kThreads, false> stream(queries + Memory::kStream, task, own);
  stream.begin_slots();
  const auto position = [&](int row) { return task.position(row); };
  gather_rows<Dqk, kThreads, kTiles * kTile>(queries, Rows::of(g.q, place.b, place.h), position);
  gather_rows<Dv, kThreads, kTiles * kTile>(gradients, Rows::of(g.dy, place.b, place.h), position);
  stream.begin();
  const float scale = static_cast<float>(g.scale) * kLog2E;
  float lse[M][2], delta[M][2];
  load_scalars(lse, delta, task, first_row);

  Accumulators<M, Dqk> dq;
  dq.clear();
  Fragments<M, Shape::kSmall ? Dqk : 16> q;
  Fragments<M, Shape::kSmall ? Dv : 16> dy;
  if constexpr (Shape::kSmall) {
    stream.wait();
    load_fragments<M, Dqk, Dqk>(q, queries, first_row / 16);
    load_fragments<M, Dv, Dv>(dy, gradients, first_row / 16);
  }
  for (; !stream.done(); stream.advance()) {
    stream.arrive();
    const int mask = stream.template mask_within_segments<16 * M>(first_row);
    if (mask == kSkip) continue;
#pragma unroll 1
    for (int first = 0; first < kTile; first += N) {
      Accumulators<M, N> s, ds;
      if constexpr (Shape::kSmall) {
        mma_abt<T, M, N, Dqk>(s, q, stream.x(), first / 16);
        mma_abt<T, M, N, Dv>(ds, dy, stream.y(), first / 16);
      } else {
        mma_abt<T, M, N, Dqk>(s, queries, first_row / 16, stream.x(), first / 16);
        mma_abt<T, M, N, Dv>(ds, gradients, first_row / 16, stream.y(), first / 16);
      }
      score_gradients(ds, s, scale, lse, delta);
      if (mask >= 0) apply_mask(ds, stream, first_row, first, 0.0f);
      Fragments<M, N> f;
      round_to_fragments<T>(f, ds);
      mma_ab<T, M, N, Dqk>(dq, f, stream.x(), first / 16);
    }
  }
  __syncthreads();
  const BlockIndex end(g.q);  // found once more: registers are scarce
  store_rows<T>(shared + Memory::kStream, dq,
                RowFactors<M>(static_cast<float>(g.scale), task.accumulate), task, first_row,
                Rows::of(g.dq, end.b, end.h));
}

// ---- dK, dV ----

// Transposed scores into probabilities; columns are the queries from `first` of the stream's tile.
template <int M, int N, class Stream>
__device__ __forceinline__ void probabilities(Accumulators<M, N>& p, const Stream& stream,
                                              int first, float scale) {
#pragma unroll
  for (int n = 0; n < N / 8; ++n) {
    const float2 lse = stream.lse(first + n * 8 + threadIdx.x % 4 * 2);
    const float low = lse.x * kLog2E, high = lse.y * kLog2E;
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        p.c[m][n][i] = exp2_fast(fmaf(p.c[m][n][i], scale, -(i % 2 ? high : low)));
  }
}

template <int M, int N, class Stream>
__device__ __forceinline__ void score_gradients(Accumulators<M, N>& ds, const Accumulators<M, N>& p,
                                                const Stream& stream, int first) {
#pragma unroll
  for (int n = 0; n < N / 8; ++n) {
    const float2 delta = stream.delta(first + n * 8 + threadIdx.x % 4 * 2);
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        ds.c[m][n][i] = p.c[m][n][i] * (ds.c[m][n][i] - (i % 2 ? delta.y : delta.x));
  }
}

template <class T, int Dqk, int Dv>
__global__ void __launch_bounds__(BackwardShape<Dqk, Dv>::kThreads, BackwardShape<Dqk, Dv>::kBlocks)
    key_stationary_kernel(const __grid_constant__ AttentionBackward g,
                          const __grid_constant__ AttentionPass pass) {
  using Shape = BackwardShape<Dqk, Dv>;
  using Memory = BackwardMemory<Dqk, Dv, true>;
  constexpr int M = Shape::M, N = Shape::N, kTiles = Shape::kTiles, kThreads = Shape::kThreads;
  extern __shared__ __align__(128) char shared[];
  __shared__ Task<kTiles> task;
  const BlockIndex place(g.q);
  if (!take_task<Direction::key_stationary>(task, place, g, pass, g.q, g.dy, g.delta)) return;
  const int first_row = threadIdx.x / 32 * 16 * M, own = first_row / kTile;

  const uint32_t keys = shared_address(shared), values = keys + Memory::kY;
  Stream<kTiles, Dqk, Dv, kThreads, true> stream(keys + Memory::kStream, task, own);
  stream.begin_slots();
  const auto position = [&](int row) { return task.position(row); };
  gather_rows<Dqk, kThreads, kTiles * kTile>(keys, Rows::of(g.k, place.b, place.h), position);
  gather_rows<Dv, kThreads, kTiles * kTile>(values, Rows::of(g.v, place.b, place.h), position);
  stream.begin();
  const float scale = static_cast<float>(g.scale) * kLog2E;

  Accumulators<M, Dqk> dk;
  Accumulators<M, Dv> dv;
  dk.clear();
  dv.clear();
  for (; !stream.done(); stream.advance()) {
    stream.arrive();
    const int mask = stream.template mask_within_segments<16 * M>(first_row);
    if (mask == kSkip) continue;
#pragma unroll 1
    for (int first = 0; first < kTile; first += N) {
      Accumulators<M, N> p, ds;
      Fragments<M, N> f;
      mma_abt<T, M, N, Dqk>(p, keys, first_row / 16, stream.x(), first / 16);
      probabilities(p, stream, first, scale);
      if (mask >= 0) apply_mask(p, stream, first_row, first, 0.0f);
      mma_abt<T, M, N, Dv>(ds, values, first_row / 16, stream.y(), first / 16);
      score_gradients(ds, p, stream, first);
      round_to_fragments<T>(f, p);
      mma_ab<T, M, N, Dv>(dv, f, stream.y(), first / 16);
      round_to_fragments<T>(f, ds);
      mma_ab<T, M, N, Dqk>(dk, f, stream.x(), first / 16);
    }
  }

  __syncthreads();
  char* const staging = shared + Memory::kStream;
  store_rows<T>(staging, dk, RowFactors<M>(static_cast<float>(g.scale), task.accumulate), task,
                first_row, Rows::of(g.dk, place.b, place.h));
  __syncthreads();
  store_rows<T>(staging, dv, RowFactors<M>(1, task.accumulate), task, first_row,
                Rows::of(g.dv, place.b, place.h));
}
}  // namespace weft::attention::ampere
