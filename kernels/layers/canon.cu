// SPDX-License-Identifier: MIT
// Canon layers on CUDA. A warp takes a run of neighbouring rows and 256 columns, eight a lane; the
// three rows that it saw last stay in registers.
#include "kernels/device/column_sums.cuh"
#include "kernels/device/vector8.cuh"
#include "kernels/layers/canon.h"

#include <cstddef>

namespace weft {
namespace {
constexpr int kGroup = 8, kBlocksOfSm = 2;
constexpr int64_t kBlocks = 132 * kBlocksOfSm;  // the multiprocessors of an H200

template <class T>
struct Call {
  T* out;                         // y, or dx (null: not wanted)
  const T *x, *dy;                // dy: backward
  const float* w;                 // (4, cols)
  float* partial;                 // backward: (stripes, 4, cols), first stage of dw
  int64_t rows, cols, time, run;  // run: rows of a warp
  bool accumulate;
};

// Eight columns of a row on their way: as they lie in memory where they are packed.
template <class T, bool kPacked>
struct Loaded {
  using Row = Eight<T>;

  static __device__ __forceinline__ void read(Row& row, const T* p, int64_t) {
    row = load_eight(p);
  }

  static __device__ __forceinline__ void unpack(float (&out)[kGroup], const Row& row) {
    weft::unpack(out, row);
  }
};

template <class T>
struct Loaded<T, false> {
  struct Row {
    float v[kGroup];
  };

  static __device__ __forceinline__ void read(Row& row, const T* p, int64_t count) {
    load(row.v, p, count, false);
  }

  static __device__ __forceinline__ void unpack(float (&out)[kGroup], const Row& row) {
#pragma unroll
    for (int j = 0; j < kGroup; ++j) out[j] = row.v[j];
  }
};

// Backward a warp goes through its rows from the last to the first: what it saw last is dy of the
// rows behind.
template <class T, bool kBackward, bool kPacked, int kAhead>
__global__ void __launch_bounds__(kStripeThreads, kBlocksOfSm) canon_rows(const Call<T> a) {
  const int64_t first_of_block = static_cast<int64_t>(blockIdx.x) * kStripeColumns;
  const int64_t first = first_of_block + threadIdx.x % kWarp * kGroup;
  const int64_t count = kPacked ? kGroup : a.cols - first;
  const int64_t begin =
      (static_cast<int64_t>(blockIdx.y) * kStripeWarps + threadIdx.x / kWarp) * a.run;
  const int64_t end = min(begin + a.run, a.rows), steps = first < a.cols ? end - begin : 0;
  const T* const from = kBackward ? a.dy : a.x;
  constexpr int64_t kStep = kBackward ? -1 : 1;
  const int64_t start = kBackward ? end - 1 : begin;
  using Eights = Loaded<T, kPacked>;
  float w[kCanonTaps][kGroup], sums[kCanonTaps][kGroup] = {};
  typename Eights::Row seen[kCanonTaps - 1] = {};
  // in its sequence, counted in the direction of the warp
  int64_t place = 0;
  if (steps > 0) {
    place = kBackward ? a.time - 1 - start % a.time : start % a.time;
#pragma unroll
    for (int i = 0; i < kCanonTaps; ++i) load(w[i], a.w + i * a.cols + first, count, kPacked);
#pragma unroll
    for (int i = 1; i < kCanonTaps; ++i)
      if (i <= place) Eights::read(seen[i - 1], from + (start - kStep * i) * a.cols + first, count);
  }
  for (int64_t step = 0; step < steps; step += kAhead) {
    typename Eights::Row next[kAhead], next_x[kAhead];
#pragma unroll
    for (int r = 0; r < kAhead; ++r) {
      if (step + r >= steps) break;
      const int64_t at = (start + kStep * (step + r)) * a.cols + first;
      Eights::read(next[r], from + at, count);
      if constexpr (kBackward) Eights::read(next_x[r], a.x + at, count);
    }
#pragma unroll
    for (int r = 0; r < kAhead; ++r) {
      if (step + r >= steps) break;
      if (place == a.time) {
        place = 0;
#pragma unroll
        for (auto& row : seen) row = {};
      }
      ++place;
      float now[kGroup], x[kGroup], out[kGroup];
      Eights::unpack(now, next[r]);
      if constexpr (kBackward) Eights::unpack(x, next_x[r]);
#pragma unroll
      for (int j = 0; j < kGroup; ++j) {
        out[j] = fmaf(w[0][j], now[j], now[j]);
        if constexpr (kBackward) sums[0][j] = fmaf(now[j], x[j], sums[0][j]);
      }
#pragma unroll
      for (int i = 1; i < kCanonTaps; ++i) {
        Eights::unpack(now, seen[i - 1]);
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
          out[j] = fmaf(w[i][j], now[j], out[j]);
          if constexpr (kBackward) sums[i][j] = fmaf(now[j], x[j], sums[i][j]);
        }
      }
#pragma unroll
      for (int i = kCanonTaps - 2; i > 0; --i) seen[i] = seen[i - 1];
      seen[0] = next[r];
      const int64_t at = (start + kStep * (step + r)) * a.cols + first;
      if (a.out) store(a.out + at, out, count, kPacked, a.accumulate);
    }
  }
  if constexpr (kBackward) {
    __shared__ WarpSums<kCanonTaps> of_warp;
    write_stripe<kCanonTaps>(of_warp, a.partial, blockIdx.y, first_of_block, a.cols, sums);
  }
}

template <bool kBackward>
void launch(CudaQueue& q, const GradView& out, const TensorView& x, const TensorView& dy,
            const TensorView& w, int64_t stripes, float* partial) {
  const int64_t warps = stripes * kStripeWarps;
  const dim3 grid(blocks_for(x.cols(), kStripeColumns), static_cast<unsigned>(stripes));
  const bool packed = x.cols() % kGroup == 0 && aligned16(out.view, x, dy, w);
  dispatch_cuda(x.dtype, [&]<class T>() {
    const Call<T> a{
        .out = out.view.or_null<T>(),
        .x = x.as<T>(),
        .dy = dy.or_null<T>(),
        .w = w.as<float>(),
        .partial = partial,
        .rows = x.rows(),
        .cols = x.cols(),
        .time = x.shape[x.rank - 2],
        .run = (x.rows() + warps - 1) / warps,
        .accumulate = out.accumulate,
    };
    if (packed)
      canon_rows<T, kBackward, true, kBackward ? 2 : 4><<<grid, kStripeThreads, 0, q.stream>>>(a);
    if (!packed) canon_rows<T, kBackward, false, 1><<<grid, kStripeThreads, 0, q.stream>>>(a);
  });
}
}  // namespace

void compute(CudaQueue& q, const CanonForward& k) {
  if (k.x.size() == 0) return;
  launch<false>(q, {k.y, false}, k.x, {}, k.w, stripes_of(k.x.rows(), k.x.cols(), kBlocks),
                nullptr);
}

void compute(CudaQueue& q, const CanonBackward& k) {
  if (k.x.size() == 0) return;
  const int64_t cols = k.x.cols(), stripes = stripes_of(k.x.rows(), cols, kBlocks);
  std::size_t offset = 0;
  auto* partial =
      take_workspace<float>(q, offset, stripes * kCanonTaps * cols, CanonBackward::kName);
  launch<true>(q, k.dx, k.x, k.dy, k.w, stripes, partial);
  if (!k.dw) return;
  SumTargets<kCanonTaps> targets;
  for (int i = 0; i < kCanonTaps; ++i) {
    targets.of[i] = column_sums(k.dw);
    targets.of[i].out += i * cols;
  }
  launch_sum_partials<kCanonTaps>(q, targets, partial, stripes, cols);
}
}  // namespace weft
