// SPDX-License-Identifier: MIT
// The simple forward pass: an online softmax over the strips of a row of tiles.
#include "kernels/attention/simple/simple.cuh"

#include <algorithm>

namespace weft::attention::simple {
namespace {
__device__ float row_max(float x) {
#pragma unroll
  for (int lane = 1; lane < kColumnThreads; lane *= 2)
    x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, lane));
  return x;
}

__device__ float row_sum(float x) {
#pragma unroll
  for (int lane = 1; lane < kColumnThreads; lane *= 2) x += __shfl_xor_sync(kFullWarp, x, lane);
  return x;
}

// Sums relative to e^top; `sum` is over the columns of this thread alone.
template <class S>
struct OnlineSoftmax {
  typename S::RowScalars top, sum;
  typename S::RowSums y;

  __device__ OnlineSoftmax() {
#pragma unroll
    for (int i = 0; i < S::kRowsOfThread; ++i) top[i] = -INFINITY, sum[i] = 0;
    clear<S>(y);
  }

  // Goes on from what earlier passes stored: y is a sum relative to e^lse whose weights add up
  // to 1.
  __device__ void resume(const AttentionForward& f, const BlockIndex& at, const int32_t* order) {
    load_rows<S>(f.y, at, order, y);
#pragma unroll
    for (int i = 0; i < S::kRowsOfThread; ++i) {
      const int position = order[S::first_row() + i];
      if (position < 0) continue;
      top[i] = scalar(f.lse, at, position);
      sum[i] = top[i] == -INFINITY || column_thread() > 0 ? 0.0f : 1.0f;
    }
  }

  // Scores into probabilities; the sums so far are rescaled to the new maximum.
  template <class Attended>
  __device__ void add(typename S::Scores& s, float scale, Attended&& attended) {
#pragma unroll
    for (int i = 0; i < S::kRowsOfThread; ++i) {
      float high = -INFINITY;
#pragma unroll
      for (int j = 0; j < S::kColumnsOfThread; ++j) {
        s[i][j] = attended(i, j) ? s[i][j] * scale : -INFINITY;
        high = fmaxf(high, s[i][j]);
      }
      high = fmaxf(top[i], row_max(high));
      const float reference = high == -INFINITY ? 0.0f : high, shrink = expf(top[i] - reference);
      top[i] = high;
      sum[i] *= shrink;
      for (auto& part : y[i])
        part = {part.x * shrink, part.y * shrink, part.z * shrink, part.w * shrink};
#pragma unroll
      for (int j = 0; j < S::kColumnsOfThread; ++j) sum[i] += s[i][j] = expf(s[i][j] - reference);
    }
  }

  __device__ void store(const AttentionForward& f, const BlockIndex& at, const int32_t* order) {
    float* lse = static_cast<float*>(f.lse.data) + (at.b * f.q.heads + at.h) * f.q.time;
    typename S::RowScalars inverse;
#pragma unroll
    for (int i = 0; i < S::kRowsOfThread; ++i) {
      const float total = row_sum(sum[i]);  // 0: nothing is attended
      inverse[i] = total == 0 ? 0.0f : 1 / total;
      const int position = order[S::first_row() + i];
      if (position >= 0 && column_thread() == 0)
        lse[position] = total == 0 ? -INFINITY : top[i] + logf(total);
    }
    store_rows<S>(f.y, at, order, y, inverse, false);
  }
};

template <class S>
__global__ void __launch_bounds__(kSimpleThreads, S::kBlocks)
    forward_kernel(const __grid_constant__ AttentionForward f, const AttentionPass pass) {
  extern __shared__ __align__(128) float memory[];
  float *q = memory, *k = q + S::kMatrix, *v = k + S::kMatrix, *weights = v + S::kMatrix;
  const BlockIndex place(f.q);
  const TileMap& map = pass.maps[f.maps.map_of(place.b, place.h)];
  const Direction rows = Direction::query_stationary(map);
  const Strip<S> own(rows, place.rank);
  if (own.tile < 0 || (map.accumulate && !own.has_pairs())) return;
  gather<S>(q, f.q, place, own.order());
  const float scale = static_cast<float>(f.scale);
  OnlineSoftmax<S> softmax;
  if (map.accumulate) softmax.resume(f, place, own.order());
  own.for_each_partner(place, f.segments.queries, f.segments.keys,
                       [&](const int32_t* order, auto&& attended) {
                         gather<S>(k, f.k, place, order);
                         gather<S>(v, f.v, place, order);
                         __syncthreads();
                         typename S::Scores s;
                         multiply_transposed<S>(s, q, k);
                         softmax.add(s, scale, attended);
                         put_weights<S>(weights, s);
                         __syncwarp();
                         multiply_add<S>(softmax.y, weights, v);
                       });
  softmax.store(f, place, own.order());
}
}  // namespace

void launch_forward(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  with_simple(f.q.dtype, std::max(f.q.size, f.v.size), pass.edge, [&]<class S>() {
    start(queue, forward_kernel<S>, blocks_for(f.q, int64_t{S::kStrips} * pass.query_tiles, 1),
          kSimpleThreads, S::bytes(3), f, pass);
  });
}
}  // namespace weft::attention::simple
