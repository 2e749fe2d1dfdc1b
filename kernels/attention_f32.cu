// SPDX-License-Identifier: MIT
// Attention in true f32 (fused multiply-adds, never tf32): the same walks as on tensor cores. A block of 128
// threads owns 32 rows, half a tile, and walks the other side 32 rows at a time; a thread has 4 rows by 2
// columns of scores.
#include "kernels/attention_forms.h"
#include "kernels/attention_launch.cuh"
#include "kernels/attention_walk.cuh"

namespace weft::attention {
namespace {

constexpr int kThreads = 128, kRows = 32, kWeightPitch = kRows + 4;
constexpr int kRowsOfThread = 4, kColumnThreads = 16;

template <int P>
inline constexpr int kPitch = P + 4;  // floats; 8 neighbouring rows lie in 8 different groups of banks

__device__ int first_row() { return threadIdx.x / kColumnThreads * kRowsOfThread; }
__device__ int column_thread() { return threadIdx.x % kColumnThreads; }

__device__ float* row_of(const HeadsView& x, const Place& at, int position) {
  return static_cast<float*>(x.data) + at.b * x.batch_stride + position * x.time_stride +
         at.h * x.head_stride;
}

// Copies kRows rows named by `order` to shared memory, P columns each, zeros beyond the true size and in
// empty slots.
template <int P>
__device__ void gather(float* to, const HeadsView& x, const Place& at, const std::int32_t* order) {
  for (int item = threadIdx.x; item < kRows * (P / 4); item += kThreads) {
    const int row = item / (P / 4), column = item % (P / 4) * 4, position = order[row];
    float4 value = {0, 0, 0, 0};
    if (position >= 0 && column < x.size)
      value = *reinterpret_cast<const float4*>(row_of(x, at, position) + column);
    *reinterpret_cast<float4*>(to + row * kPitch<P> + column) = value;
  }
}

// s[i][j] = row first_row() + i of a times row column_thread() + 16 j of b.
template <int P>
__device__ void multiply_transposed(float (&s)[kRowsOfThread][2], const float* a, const float* b) {
  for (auto& row : s) row[0] = row[1] = 0;
#pragma unroll 4
  for (int d = 0; d < P; d += 4) {
    float4 x[kRowsOfThread], y[2];
#pragma unroll
    for (int i = 0; i < kRowsOfThread; ++i)
      x[i] = *reinterpret_cast<const float4*>(a + (first_row() + i) * kPitch<P> + d);
#pragma unroll
    for (int j = 0; j < 2; ++j)
      y[j] = *reinterpret_cast<const float4*>(b + (column_thread() + j * kColumnThreads) * kPitch<P> + d);
#pragma unroll
    for (int i = 0; i < kRowsOfThread; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        s[i][j] =
            fmaf(x[i].w, y[j].w, fmaf(x[i].z, y[j].z, fmaf(x[i].y, y[j].y, fmaf(x[i].x, y[j].x, s[i][j]))));
  }
}

// Rows first_row() + i, columns 64 j + 4 column_thread() .. + 3.
template <int P>
using RowSums = float4[kRowsOfThread][P / 64];

template <int P>
__device__ void clear(RowSums<P>& sums) {
  for (auto& row : sums)
    for (auto& part : row) part = {0, 0, 0, 0};
}

__device__ void add_product(float4& sum, float w, const float4& x) {
  sum.x = fmaf(w, x.x, sum.x);
  sum.y = fmaf(w, x.y, sum.y);
  sum.z = fmaf(w, x.z, sum.z);
  sum.w = fmaf(w, x.w, sum.w);
}

// sums += weights (kRows x kRows) x (kRows x P). A thread reads weights that its own half warp wrote.
template <int P>
__device__ void multiply_add(RowSums<P>& sums, const float* weights, const float* x) {
#pragma unroll 2
  for (int k = 0; k < kRows; k += 4) {
    float w[kRowsOfThread][4];
#pragma unroll
    for (int i = 0; i < kRowsOfThread; ++i) {
      const float4 four = *reinterpret_cast<const float4*>(weights + (first_row() + i) * kWeightPitch + k);
      w[i][0] = four.x, w[i][1] = four.y, w[i][2] = four.z, w[i][3] = four.w;
    }
#pragma unroll
    for (int step = 0; step < 4; ++step)
#pragma unroll
      for (int j = 0; j < P / 64; ++j) {
        const float4 value =
            *reinterpret_cast<const float4*>(x + (k + step) * kPitch<P> + j * 64 + column_thread() * 4);
#pragma unroll
        for (int i = 0; i < kRowsOfThread; ++i) add_product(sums[i][j], w[i][step], value);
      }
  }
}

__device__ void put_weights(float* weights, const float (&w)[kRowsOfThread][2]) {
#pragma unroll
  for (int i = 0; i < kRowsOfThread; ++i)
#pragma unroll
    for (int j = 0; j < 2; ++j)
      weights[(first_row() + i) * kWeightPitch + column_thread() + j * kColumnThreads] = w[i][j];
}

template <int P>
__device__ void store_rows(const HeadsView& out, const Place& at, const std::int32_t* order,
                           const RowSums<P>& sums, const float (&factor)[kRowsOfThread]) {
#pragma unroll
  for (int i = 0; i < kRowsOfThread; ++i) {
    const int position = order[first_row() + i];
    if (position < 0) continue;
#pragma unroll
    for (int j = 0; j < P / 64; ++j) {
      const int column = j * 64 + column_thread() * 4;
      const float4& s = sums[i][j];
      if (column < out.size)
        *reinterpret_cast<float4*>(row_of(out, at, position) + column) =
            float4{s.x * factor[i], s.y * factor[i], s.z * factor[i], s.w * factor[i]};
    }
  }
}

// The half tile that a block owns, and the half tiles it walks over.
struct HalfTile {
  const Direction& d;
  int tile, half;
  __device__ HalfTile(const Direction& direction, int rank) : d(direction), half(rank % 2) {
    tile = rank / 2 < d.own_tiles ? d.schedule[rank / 2] : -1;
  }
  __device__ const std::int32_t* order() const {
    return d.own_order + static_cast<std::int64_t>(tile) * kTile + half * kRows;
  }
  // Calls f(order of 32 rows of the other side, attended) for each half of each tile of the walk, where
  // attended(i, j) says whether row first_row() + i sees column column_thread() + 16 j.
  template <class F>
  __device__ void walk(F&& f) const {
    for (int e = d.start[tile]; e < d.start[tile + 1]; ++e)
      for (int other = 0; other < 2; ++other) {
        std::uint32_t words[kRowsOfThread];
#pragma unroll
        for (int i = 0; i < kRowsOfThread; ++i)
          words[i] = d.mask[e] < 0
                         ? ~0u
                         : static_cast<std::uint32_t>(d.masks[static_cast<std::int64_t>(d.mask[e]) * kTile +
                                                              half * kRows + first_row() + i] >>
                                                      (other * kRows));
        f(d.other_order + static_cast<std::int64_t>(d.tile[e]) * kTile + other * kRows,
          [&](int i, int j) { return words[i] >> (column_thread() + j * kColumnThreads) & 1; });
      }
  }
};

__device__ float row_max(float x) {
#pragma unroll
  for (int lane = 1; lane < kColumnThreads; lane *= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lane));
  return x;
}
__device__ float row_sum(float x) {
#pragma unroll
  for (int lane = 1; lane < kColumnThreads; lane *= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
  return x;
}

// Scores into probabilities relative to the running maximum; the sums so far are rescaled to it.
template <int P, class Attended>
__device__ void online_softmax(float (&s)[kRowsOfThread][2], float scale, Attended&& attended,
                               float (&top)[kRowsOfThread], float (&sum)[kRowsOfThread], RowSums<P>& y) {
#pragma unroll
  for (int i = 0; i < kRowsOfThread; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) s[i][j] = attended(i, j) ? s[i][j] * scale : -INFINITY;
    const float high = fmaxf(top[i], row_max(fmaxf(s[i][0], s[i][1])));
    const float reference = high == -INFINITY ? 0.0f : high, shrink = expf(top[i] - reference);
    top[i] = high;
    sum[i] *= shrink;
    for (auto& part : y[i]) part = {part.x * shrink, part.y * shrink, part.z * shrink, part.w * shrink};
#pragma unroll
    for (int j = 0; j < 2; ++j) sum[i] += s[i][j] = expf(s[i][j] - reference);
  }
}

template <int P>
__global__ void __launch_bounds__(kThreads, 2)
    forward_kernel(const __grid_constant__ AttentionForward f, const AttentionPass pass) {
  extern __shared__ __align__(128) float memory[];
  float *q = memory, *k = q + kRows * kPitch<P>, *v = k + kRows * kPitch<P>, *weights = v + kRows * kPitch<P>;
  const Place place(f.q);
  const Direction rows = Direction::rows(pass.maps[f.maps.group_of_head[place.h]]);
  const HalfTile own(rows, place.rank);
  if (own.tile < 0) return;
  gather<P>(q, f.q, place, own.order());
  const float scale = static_cast<float>(f.scale);
  float top[kRowsOfThread], sum[kRowsOfThread] = {};
  for (float& x : top) x = -INFINITY;
  RowSums<P> y;
  clear<P>(y);
  own.walk([&](const std::int32_t* order, auto&& attended) {
    __syncthreads();
    gather<P>(k, f.k, place, order);
    gather<P>(v, f.v, place, order);
    __syncthreads();
    float s[kRowsOfThread][2];
    multiply_transposed<P>(s, q, k);
    online_softmax<P>(s, scale, attended, top, sum, y);
    put_weights(weights, s);
    __syncwarp();
    multiply_add<P>(y, weights, v);
  });
  float* lse = static_cast<float*>(f.lse.data) + (place.b * f.q.heads + place.h) * f.q.time;
  float inverse[kRowsOfThread];
#pragma unroll
  for (int i = 0; i < kRowsOfThread; ++i) {
    const float total = row_sum(sum[i]);
    inverse[i] = total == 0 ? 0.0f : 1 / total;
    const int position = own.order()[first_row() + i];
    if (position >= 0 && column_thread() == 0) lse[position] = total == 0 ? -INFINITY : top[i] + logf(total);
  }
  store_rows<P>(f.y, place, own.order(), y, inverse);
}

// lse or delta of the row in a slot.
__device__ float scalar(const TensorView& x, const Place& at, int position) {
  return position < 0 ? 0.0f
                      : static_cast<const float*>(x.data)[(at.b * x.shape[1] + at.h) * x.shape[2] + position];
}

template <int P>
__global__ void __launch_bounds__(kThreads, 2)
    backward_rows_kernel(const __grid_constant__ AttentionBackward g, const AttentionPass pass) {
  extern __shared__ __align__(128) float memory[];
  float *q = memory, *dy = q + kRows * kPitch<P>, *k = dy + kRows * kPitch<P>, *v = k + kRows * kPitch<P>,
        *weights = v + kRows * kPitch<P>;
  const Place place(g.q);
  const Direction rows = Direction::rows(pass.maps[g.maps.group_of_head[place.h]]);
  const HalfTile own(rows, place.rank);
  if (own.tile < 0) return;
  gather<P>(q, g.q, place, own.order());
  gather<P>(dy, g.dy, place, own.order());
  const float scale = static_cast<float>(g.scale);
  float lse[kRowsOfThread], delta[kRowsOfThread];
#pragma unroll
  for (int i = 0; i < kRowsOfThread; ++i) {
    const int position = own.order()[first_row() + i];
    lse[i] = scalar(g.lse, place, position);
    delta[i] = scalar(g.delta, place, position);
  }
  RowSums<P> dq;
  clear<P>(dq);
  own.walk([&](const std::int32_t* order, auto&& attended) {
    __syncthreads();
    gather<P>(k, g.k, place, order);
    gather<P>(v, g.v, place, order);
    __syncthreads();
    float s[kRowsOfThread][2], ds[kRowsOfThread][2];
    multiply_transposed<P>(s, q, k);
    multiply_transposed<P>(ds, dy, v);
#pragma unroll
    for (int i = 0; i < kRowsOfThread; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        ds[i][j] = attended(i, j) ? expf(s[i][j] * scale - lse[i]) * (ds[i][j] - delta[i]) : 0.0f;
    put_weights(weights, ds);
    __syncwarp();
    multiply_add<P>(dq, weights, k);
  });
  const float factor[kRowsOfThread] = {scale, scale, scale, scale};
  store_rows<P>(g.dq, place, own.order(), dq, factor);
}

template <int P>
__global__ void __launch_bounds__(kThreads, 2)
    backward_columns_kernel(const __grid_constant__ AttentionBackward g, const AttentionPass pass) {
  extern __shared__ __align__(128) float memory[];
  float *k = memory, *v = k + kRows * kPitch<P>, *q = v + kRows * kPitch<P>, *dy = q + kRows * kPitch<P>,
        *weights = dy + kRows * kPitch<P>;
  const Place place(g.q);
  const Direction columns = Direction::columns(pass.maps[g.maps.group_of_head[place.h]]);
  const HalfTile own(columns, place.rank);
  if (own.tile < 0) return;
  gather<P>(k, g.k, place, own.order());
  gather<P>(v, g.v, place, own.order());
  const float scale = static_cast<float>(g.scale);
  RowSums<P> dk, dv;
  clear<P>(dk);
  clear<P>(dv);
  own.walk([&](const std::int32_t* order, auto&& attended) {
    __syncthreads();
    gather<P>(q, g.q, place, order);
    gather<P>(dy, g.dy, place, order);
    __syncthreads();
    float p[kRowsOfThread][2], ds[kRowsOfThread][2];
    multiply_transposed<P>(p, k, q);
    multiply_transposed<P>(ds, v, dy);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int position = order[column_thread() + j * kColumnThreads];
      const float lse = scalar(g.lse, place, position), delta = scalar(g.delta, place, position);
#pragma unroll
      for (int i = 0; i < kRowsOfThread; ++i) {
        p[i][j] = attended(i, j) ? expf(p[i][j] * scale - lse) : 0.0f;
        ds[i][j] = attended(i, j) ? p[i][j] * (ds[i][j] - delta) : 0.0f;
      }
    }
    put_weights(weights, p);
    __syncwarp();
    multiply_add<P>(dv, weights, dy);
    __syncwarp();
    put_weights(weights, ds);
    __syncwarp();
    multiply_add<P>(dk, weights, q);
  });
  const float scales[kRowsOfThread] = {scale, scale, scale, scale}, ones[kRowsOfThread] = {1, 1, 1, 1};
  store_rows<P>(g.dk, place, own.order(), dk, scales);
  store_rows<P>(g.dv, place, own.order(), dv, ones);
}

template <int P>
constexpr int bytes(int matrices) {
  return (matrices * kRows * kPitch<P> + kRows * kWeightPitch) * static_cast<int>(sizeof(float));
}

template <class F>
void with_head_size(std::int64_t size, F&& f) {
  if (size <= 64) return f.template operator()<64>();
  return f.template operator()<128>();
}

template <class Kernel>
void check_covered(const Kernel& f, const AttentionPass& pass) {
  const DType dtype = f.q.dtype;
  const std::int64_t size = std::max(f.q.size, f.v.size);
  WEFT_CHECK(f.maps.passes == 1 && !f.segments,
             "attention form 'simple' takes patterns of one part and no segments; the CPU takes them");
  WEFT_CHECK(dtype == DType::f32 && size <= 128 && pass.edge == kTile,
             "attention form 'simple' takes f32, heads up to 128 and tiles of edge ", kTile, ", got ",
             name_of(dtype), ", ", size, " and ", pass.edge);
}

}  // namespace

void simple_forward(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  check_covered(f, pass);
  with_head_size(std::max(f.q.size, f.v.size), [&]<int P>() {
    start(queue, forward_kernel<P>, blocks_for(f.q, 2 * pass.query_tiles, 1), kThreads, bytes<P>(3), f, pass);
  });
}

void simple_backward(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass) {
  check_covered(g, pass);
  with_head_size(std::max(g.q.size, g.v.size), [&]<int P>() {
    start(queue, backward_rows_kernel<P>, blocks_for(g.q, 2 * pass.query_tiles, 1), kThreads, bytes<P>(4), g,
          pass);
    start(queue, backward_columns_kernel<P>, blocks_for(g.q, 2 * pass.key_tiles, 1), kThreads, bytes<P>(4), g,
          pass);
  });
}

}  // namespace weft::attention
