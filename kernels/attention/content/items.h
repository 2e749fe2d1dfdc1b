// SPDX-License-Identifier: MIT
// The definitions of content.h: kernels are made of independent items, each the body of the CPU's
// loop and that of a CUDA thread. Sums run in order, those of labels and choices in f32 by fma:
// both give the same bits.
#pragma once

#include "kernels/attention/content/content.h"
#include "kernels/philox.h"

#include <cmath>

#ifdef __CUDACC__
#include "kernels/device/cuda.cuh"
#define WEFT_ITEM __host__ __device__ inline
#else
#include "kernels/cpu.h"
#define WEFT_ITEM inline
#endif

namespace weft::content {
// Calls kItem(k, i) for i in 0 .. n - 1, in any order; and f with an element type.
#ifdef __CUDACC__
using AnyQueue = CudaQueue;
inline constexpr int kThreads = 128;

template <auto kItem, class K>
__global__ void __launch_bounds__(kThreads) items_kernel(const __grid_constant__ K k, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) kItem(k, i);
}

template <auto kItem, class K>
void for_items(CudaQueue& queue, const K& k, int64_t n) {
  if (n > 0) items_kernel<kItem, K><<<blocks_for(n, kThreads), kThreads, 0, queue.stream>>>(k, n);
}

template <class F>
void dispatch(DType t, F&& f) {
  dispatch_cuda(t, f);
}
#else
using AnyQueue = CpuQueue;

template <auto kItem, class K>
void for_items(CpuQueue&, const K& k, int64_t n) {
#pragma omp parallel for schedule(dynamic, 64) if (n > 256)
  for (int64_t i = 0; i < n; ++i) kItem(k, i);
}

template <class F>
void dispatch(DType t, F&& f) {
  dispatch_float(t, f);
}
#endif

// Items of several lanes: a warp of CUDA, or the one lane of the CPU. Their number is that of items
// times kLanes.
#ifdef __CUDACC__
inline constexpr int kLanes = kWarp;
#else
inline constexpr int kLanes = 1;
#endif
WEFT_ITEM int lane() {
#ifdef __CUDA_ARCH__
  return threadIdx.x % kLanes;
#else
  return 0;
#endif
}

WEFT_ITEM void sync_lanes() {
#ifdef __CUDA_ARCH__
  __syncwarp();
#endif
}

// How many lanes say yes: those before this one, and all.
struct Votes {
  int before, all;
};

WEFT_ITEM Votes votes(bool yes) {
#ifdef __CUDA_ARCH__
  const unsigned all = __ballot_sync(kFullWarp, yes);
  return {__popc(all & ((1u << lane()) - 1)), __popc(all)};
#else
  return {0, yes};
#endif
}

// The sum of the lanes up to this one.
WEFT_ITEM int32_t sum_up_to(int32_t x) {
#ifdef __CUDA_ARCH__
  for (int o = 1; o < kLanes; o *= 2) {
    const int32_t earlier = __shfl_up_sync(kFullWarp, x, o);
    if (lane() >= o) x += earlier;
  }
#endif
  return x;
}

WEFT_ITEM int32_t of_last_lane(int32_t x) {
#ifdef __CUDA_ARCH__
  return __shfl_sync(kFullWarp, x, kLanes - 1);
#else
  return x;
#endif
}

template <class T>
WEFT_ITEM T* data_of(const TensorView& x) {
  return static_cast<T*>(x.data);
}

template <class T>
WEFT_ITEM T* row_at(const HeadsView& x, int64_t b, int64_t t, int64_t h) {
  return static_cast<T*>(x.data) + b * x.batch_stride + t * x.time_stride + h * x.head_stride;
}

// Eight elements at a time on CUDA, where rows are aligned to 16 bytes.
template <class W, class T>
WEFT_ITEM void read(W (&out)[8], const T* row) {
#ifdef __CUDA_ARCH__
  load(out, row, 8, true);
#else
  for (int i = 0; i < 8; ++i) out[i] = static_cast<W>(row[i]);
#endif
}

template <class W, class T>
WEFT_ITEM void write(T* row, const W (&in)[8]) {
#ifdef __CUDA_ARCH__
  store(row, in, 8, true);
#else
  for (int i = 0; i < 8; ++i) row[i] = static_cast<T>(in[i]);
#endif
}

// sums[i][j] = q_i . row j in W, of `size` features, a multiple of 8; q_i is at q + i pitch, and
// row(j, d) has eight features of a row, from d on.
template <int Q, int N, class W, class T, class F>
WEFT_ITEM void dots(W (&sums)[Q][N], const T* q, int64_t pitch, int64_t size, F&& row) {
  for (int i = 0; i < Q; ++i)
    for (int j = 0; j < N; ++j) sums[i][j] = 0;
  for (int64_t d = 0; d < size; d += 8) {
    W x[Q][8], y[8];
    for (int i = 0; i < Q; ++i) read(x[i], q + i * pitch + d);
    for (int j = 0; j < N; ++j) {
      read(y, row(j, d));
      for (int i = 0; i < Q; ++i)
        for (int e = 0; e < 8; ++e) sums[i][j] = std::fma(x[i][e], y[e], sums[i][j]);
    }
  }
}

// The same of rows one behind the other; those from `count` on are the last one.
template <int Q, int N, class W, class T, class R>
WEFT_ITEM void dots(W (&sums)[Q][N], const T* q, int64_t pitch, const R* rows, int64_t count,
                    int64_t size) {
  dots(sums, q, pitch, size,
       [=](int j, int64_t d) { return rows + (j < count ? j : count - 1) * size + d; });
}

template <class W, class T, class R>
WEFT_ITEM W dot_rows(const T* q, const R* row, int64_t size) {
  W sum[1][1];
  dots(sum, q, 0, row, 1, size);
  return sum[0][0];
}

// The same by neighbours, each of which has the eight features from d on; in another order on CUDA.
template <class W, class T>
WEFT_ITEM W dot_by_eights(const T* q, const T* row, [[maybe_unused]] int64_t d, int64_t size) {
#ifdef __CUDA_ARCH__
  const auto eights = static_cast<unsigned>(size / 8);
  if ((eights & (eights - 1)) == 0 && eights <= kWarp) {
    W sum = dot_rows<W>(q + d, row + d, 8);
    for (unsigned o = eights / 2; o > 0; o /= 2) sum += __shfl_xor_sync(__activemask(), sum, o);
    return sum;
  }
#endif
  return dot_rows<W>(q, row, size);
}

constexpr float kLeastNorm = 1e-6f;  // of a query that is divided by its norm

template <class W>
WEFT_ITEM W inverse_norm(W square) {
  const W norm = std::sqrt(square);
  return 1 / (norm > W(kLeastNorm) ? norm : W(kLeastNorm));
}

// out[d] = f(a[d], b[d])
template <class W, class O, class A, class B, class F>
WEFT_ITEM void combine_rows(O* out, const A* a, const B* b, int64_t size, F&& f) {
  for (int64_t d = 0; d < size; d += 8) {
    W x[8], y[8];
    read(x, a + d);
    read(y, b + d);
    for (int e = 0; e < 8; ++e) x[e] = f(x[e], y[e]);
    write(out + d, x);
  }
}

// ---- labels

constexpr int64_t kSignsOfCall = 128;  // bits of a Philox block

WEFT_ITEM void signs_item(const Labels& k, int64_t i) {
  const int64_t first = i * kSignsOfCall, size = k.directions.size();
  const uint32_t draw = k.step ? static_cast<uint32_t>(k.step->draw) : 0;
  const Philox4 bits = philox4x32({static_cast<uint32_t>(i), 0, k.site, draw}, k.seed);
  for (int64_t e = 0; e < kSignsOfCall && first + e < size; ++e)
    data_of<float>(k.directions)[first + e] = bits[e / 32] >> e % 32 & 1 ? 1.0f : -1.0f;
}

template <class W>
WEFT_ITEM void direction_item(const Labels& k, int64_t i) {
  const int64_t size = k.q.size;
  const W* centroid = data_of<const W>(k.centroids) + i * size;
  const float inverse = inverse_norm(dot_rows<float>(centroid, centroid, size));
  combine_rows<float>(data_of<float>(k.directions) + i * size, centroid, centroid, size,
                      [inverse](float m, float) { return m * inverse; });
}

// The largest of products with each of Q queries, or the largest magnitude, and its place; the
// first of equals. NaN never wins.
template <int Q, bool kMagnitude>
struct Largest {
  int32_t place[Q];
  float top[Q];

  WEFT_ITEM Largest() {
    for (int i = 0; i < Q; ++i) place[i] = 0, top[i] = kMagnitude ? 0 : -INFINITY;
  }

  // s[i][j] for kFrom <= j < kTo has the place first + j - kFrom.
  template <int kFrom, int kTo, int N>
  WEFT_ITEM void take(const float (&s)[Q][N], int32_t first) {
    for (int i = 0; i < Q; ++i)
      for (int j = kFrom; j < kTo; ++j)
        if (kMagnitude ? std::fabs(s[i][j]) > std::fabs(top[i]) : s[i][j] > top[i])
          top[i] = s[i][j], place[i] = first + j - kFrom;
  }

  // Its place among `count` products and then their negatives.
  WEFT_ITEM int32_t of_signed(int i, int32_t count) const {
    return place[i] + (top[i] < 0 ? count : 0);
  }
};

// Of round r and head h.
WEFT_ITEM const float* directions_of(const Labels& k, int64_t r, int64_t h) {
  return data_of<float>(k.directions) + (k.centroids ? h : r) * k.directions.shape[1] * k.q.size;
}

inline void directions_in_items(AnyQueue& queue, const Labels& k) {
  const int64_t size = k.directions.size();
  if (!k.centroids)
    return for_items<signs_item>(queue, k, (size + kSignsOfCall - 1) / kSignsOfCall);
  dispatch(k.q.dtype,
           [&]<class T>() { for_items<direction_item<wide_t<T>>>(queue, k, size / k.q.size); });
}

// ---- centroids

// Eight features of a piece of the members of a cluster in one sequence.
template <class T>
WEFT_ITEM void partial_item(const CentroidGradient& k, int64_t i) {
  using W = wide_t<T>;
  const int64_t size = k.q.size, d = i % (size / 8) * 8, piece = i / (size / 8) % kClusterPieces,
                of_cluster = i / (size / 8) / kClusterPieces, c = of_cluster % k.dm.shape[1],
                set = of_cluster / k.dm.shape[1];
  const int32_t* starts = data_of<const int32_t>(k.starts) + set * k.starts.shape[1] + c;
  const int32_t* order = data_of<const int32_t>(k.order) + set * k.order.shape[1] + starts[0];
  const int64_t members = starts[1] - starts[0];
  W sum[8] = {};
  for (int64_t m = members * piece / kClusterPieces; m < members * (piece + 1) / kClusterPieces;
       ++m) {
    const T* q = row_at<const T>(k.q, set / k.q.heads, order[m], set % k.q.heads);
    const W inverse = inverse_norm(dot_by_eights<W>(q, q, d, size));
    combine_rows<W>(sum, q + d, sum, 8,
                    [inverse](W x, W before) { return std::fma(x, inverse, before); });
  }
  write(data_of<W>(k.partial) + 8 * i, sum);
}

template <class W>
WEFT_ITEM void sum_item(const CentroidGradient& k, int64_t i) {
  const int64_t size = k.q.size, d = i % size, c = i / size, all = k.dm.size() / size;
  W sum = 0;
  for (int64_t b = 0; b < k.q.batch; ++b)
    for (int64_t piece = 0; piece < kClusterPieces; ++piece)
      sum += data_of<const W>(k.partial)[((b * all + c) * kClusterPieces + piece) * size + d];
  data_of<W>(k.dm)[i] = sum;
}

template <class W>
WEFT_ITEM void gradient_item(const CentroidGradient& k, int64_t i) {
  W* dm = data_of<W>(k.dm) + i * k.q.size;
  const W* m = data_of<const W>(k.m) + i * k.q.size;
  const W norm = std::sqrt(dot_rows<W>(dm, dm, k.q.size));
  const W kappa = norm > 0 ? W(1e-4f) * W(k.step->loss_gradient) : W(0),
          inverse = norm > 0 ? 1 / norm : W(0);
  combine_rows<W>(dm, dm, m, k.q.size, [=](W s, W x) { return kappa * (x - s * inverse); });
}

inline void in_items(AnyQueue& queue, const CentroidGradient& k) {
  dispatch(k.q.dtype, [&]<class T>() {
    using W = wide_t<T>;
    for_items<partial_item<T>>(queue, k, k.partial.size() / 8);
    for_items<sum_item<W>>(queue, k, k.dm.size());
    for_items<gradient_item<W>>(queue, k, k.dm.size() / k.q.size);
  });
}

// ---- rows

// Where the i-th eight features of views of a shape lie, in the order (b, t, h, d). Found once for
// all views: divisions take longer than rows, those of 64 bits longest.
struct Eight {
  int64_t b, t, h, d;

  WEFT_ITEM Eight(const HeadsView& x, int64_t i) {
    const auto at = static_cast<uint32_t>(i), eights = static_cast<uint32_t>(x.size) / 8,
               row = at / eights, heads = static_cast<uint32_t>(x.heads), of_heads = row / heads,
               time = static_cast<uint32_t>(x.time);
    b = of_heads / time, t = of_heads % time, h = row % heads, d = at % eights * 8;
  }

  template <class T>
  WEFT_ITEM T* row(const HeadsView& x) const {
    return row_at<T>(x, b, t, h);
  }
};

inline int64_t eights_of(const HeadsView& x) {
  const int64_t eights = x.batch * x.time * x.heads * (x.size / 8);
  WEFT_CHECK(eights >> 32 == 0, "rows of ", 8 * eights, " elements; fewer than 2^35 work");
  return eights;
}

// Neighbours have the same row.
template <class T>
WEFT_ITEM void keys_item(const SharedKeys& k, int64_t i) {
  using W = wide_t<T>;
  const Eight at(k.q, i);
  const int64_t size = k.q.size, d = at.d;
  const T *row = at.row<const T>(k.q), *q = row + d;
  T *of_keys = at.row<T>(k.k), *key = of_keys + d;
  const W inverse = k.normed ? W(1) : inverse_norm(dot_by_eights<W>(row, row, d, size));
  if (!k.dq.data) return combine_rows<W>(key, q, q, 8, [=](W x, W) { return x * inverse; });
  const bool scaled = k.normed || inverse >= 1 / W(kLeastNorm);  // by a constant
  const W along = scaled ? W(0) : dot_by_eights<W>(row, of_keys, d, size) * inverse * inverse;
  W of_key[8];
  combine_rows<W>(of_key, key, q, 8, [=](W du, W x) { return (du - x * along) * inverse; });
  T* dq = at.row<T>(k.dq) + d;
  combine_rows<W>(dq, dq, of_key, 8, [](W a, W b) { return a + b; });
}

template <class T>
WEFT_ITEM void no_keys_item(const SharedKeys& k, int64_t i) {
  const wide_t<T> zeros[8] = {};
  const Eight at(k.k, i);
  write(at.row<T>(k.k) + at.d, zeros);
}

inline void in_items(AnyQueue& queue, const SharedKeys& k) {
  dispatch(k.q.dtype, [&]<class T>() {
    for_items<keys_item<T>>(queue, k, eights_of(k.q));
    if (k.dq) for_items<no_keys_item<T>>(queue, k, eights_of(k.q));
  });
}

template <class T>
WEFT_ITEM void own_item(const OwnValues& k, int64_t i) {
  using W = wide_t<T>;
  if (data_of<const W>(k.lse)[i] != -W(INFINITY)) return;
  const int64_t t = i % k.y.time, h = i / k.y.time % k.y.heads, b = i / k.y.time / k.y.heads;
  T* y = row_at<T>(k.y, b, t, h);
  combine_rows<W>(y, row_at<const T>(k.x, b, t, h), y, k.y.size,
                  [add = k.add](W x, W old) { return add ? x + old : x; });
}

inline void in_items(AnyQueue& queue, const OwnValues& k) {
  dispatch(k.y.dtype, [&]<class T>() { for_items<own_item<T>>(queue, k, k.lse.size()); });
}
}  // namespace weft::content
