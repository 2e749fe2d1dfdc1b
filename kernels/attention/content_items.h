// SPDX-License-Identifier: MIT
// The definitions of content.h: kernels are made of independent items, each the body of the CPU's loop and
// that of a CUDA thread. Sums run in order, those of labels and choices in f32 by fma: both give the same
// bits.
#pragma once

#include <cmath>
#include "kernels/attention/content.h"
#include "kernels/philox.h"

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
template <auto kItem, class K> void for_items(CudaQueue& queue, const K& k, int64_t n) {
  if (n > 0) items_kernel<kItem, K><<<blocks_for(n, kThreads), kThreads, 0, queue.stream>>>(k, n);
}
template <class F> void dispatch(DType t, F&& f) { dispatch_cuda(t, f); }
#else
using AnyQueue = CpuQueue;
template <auto kItem, class K> void for_items(CpuQueue&, const K& k, int64_t n) {
#pragma omp parallel for schedule(dynamic, 64) if (n > 256)
  for (int64_t i = 0; i < n; ++i) kItem(k, i);
}
template <class F> void dispatch(DType t, F&& f) { dispatch_float(t, f); }
#endif

template <class T> WEFT_ITEM T* data_of(const TensorView& x) { return static_cast<T*>(x.data); }
template <class T> WEFT_ITEM T* row_at(const HeadsView& x, int64_t b, int64_t t, int64_t h) {
  return static_cast<T*>(x.data) + b * x.batch_stride + t * x.time_stride + h * x.head_stride;
}

// Eight elements at a time on CUDA, where rows are aligned to 16 bytes.
template <class W, class T> WEFT_ITEM void read(W (&out)[8], const T* row) {
#ifdef __CUDA_ARCH__
  load(out, row, 8, true);
#else
  for (int i = 0; i < 8; ++i) out[i] = static_cast<W>(row[i]);
#endif
}
template <class W, class T> WEFT_ITEM void write(T* row, const W (&in)[8]) {
#ifdef __CUDA_ARCH__
  store(row, in, 8, true);
#else
  for (int i = 0; i < 8; ++i) row[i] = static_cast<T>(in[i]);
#endif
}

// sums[i] = q . rows[i] in W, of `size` features, a multiple of 8. Rows from `count` on are the last one.
template <int N, class W, class T, class R>
WEFT_ITEM void dots(W (&sums)[N], const T* q, const R* rows, int64_t count, int64_t size) {
  for (int i = 0; i < N; ++i) sums[i] = 0;
  for (int64_t d = 0; d < size; d += 8) {
    W x[8], y[8];
    read(x, q + d);
    for (int i = 0; i < N; ++i) {
      read(y, rows + (i < count ? i : count - 1) * size + d);
      for (int e = 0; e < 8; ++e) sums[i] = std::fma(x[e], y[e], sums[i]);
    }
  }
}
template <class W, class T, class R> WEFT_ITEM W dot_rows(const T* q, const R* row, int64_t size) {
  W sum[1];
  dots(sum, q, row, 1, size);
  return sum[0];
}
constexpr float kLeastNorm = 1e-6f;  // of a query that is divided by its norm
template <class W, class T> WEFT_ITEM W inverse_norm(const T* row, int64_t size) {
  const W norm = std::sqrt(dot_rows<W>(row, row, size));
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

template <class W> WEFT_ITEM void direction_item(const Labels& k, int64_t i) {
  const int64_t size = k.q.size;
  const W* centroid = data_of<const W>(k.centroids) + i * size;
  const float inverse = inverse_norm<float>(centroid, size);
  combine_rows<float>(data_of<float>(k.directions) + i * size, centroid, centroid, size,
                      [inverse](float m, float) { return m * inverse; });
}

// The place of the largest of q . rows[c], c < count, or with `both` of those and then of their negatives.
template <class T>
WEFT_ITEM int32_t largest(const T* q, const float* rows, int32_t count, int64_t size, bool both) {
  int32_t best = 0, best_negative = 0;
  float top = -INFINITY, top_negative = -INFINITY;
  for (int32_t c = 0; c < count; c += 8) {
    float s[8];
    dots(s, q, rows + c * size, count - c, size);
    for (int i = 0; i < 8; ++i) {
      if (s[i] > top) top = s[i], best = c + i;
      if (-s[i] > top_negative) top_negative = -s[i], best_negative = c + i;
    }
  }
  return both && top_negative > top ? count + best_negative : best;
}

template <class T> WEFT_ITEM void label_item(const Labels& k, int64_t i) {
  const int64_t t = i % k.q.time, h = i / k.q.time % k.q.heads, b = i / k.q.time / k.q.heads % k.q.batch,
                r = i / k.q.time / k.q.heads / k.q.batch, size = k.q.size;
  const T* q = row_at<const T>(k.q, b, t, h);
  const auto columns = static_cast<int32_t>(k.directions.shape[1]), half = columns / 2;
  const float* rows = data_of<const float>(k.directions) + (k.centroids ? h : r) * columns * size;
  data_of<int32_t>(k.labels)[i] = k.centroids ? largest(q, rows, columns, size, false)
                                              : largest(q, rows, half, size, true) * columns +
                                                    largest(q, rows + half * size, half, size, true);
}

// A piece of kLabelPiece positions of a set.
struct Piece {
  const int32_t* labels;
  int32_t* counts;  // (G)
  int64_t set, first, end;
  WEFT_ITEM Piece(const Labels& k, int64_t i)
      : labels(data_of<const int32_t>(k.labels) + i / k.counts.shape[1] * k.q.time),
        counts(data_of<int32_t>(k.counts) + i * k.counts.shape[2]), set(i / k.counts.shape[1]),
        first(i % k.counts.shape[1] * kLabelPiece),
        end(first + kLabelPiece < k.q.time ? first + kLabelPiece : k.q.time) {}
};
WEFT_ITEM int32_t* starts_of(const Labels& k, int64_t set) {
  return data_of<int32_t>(k.starts) + set * k.starts.shape[1];
}

WEFT_ITEM void count_item(const Labels& k, int64_t i) {
  const Piece piece(k, i);
  for (int64_t g = 0; g < k.counts.shape[2]; ++g) piece.counts[g] = 0;
  for (int64_t t = piece.first; t < piece.end; ++t) ++piece.counts[piece.labels[t]];
}

// Counts of a label become its first place in each piece, relative to the label.
WEFT_ITEM void label_total_item(const Labels& k, int64_t i) {
  const int64_t pieces = k.counts.shape[1], labels = k.counts.shape[2], set = i / labels, label = i % labels;
  int32_t sum = 0;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    int32_t& count = data_of<int32_t>(k.counts)[(set * pieces + piece) * labels + label];
    const int32_t before = sum;
    sum += count;
    count = before;
  }
  starts_of(k, set)[label + 1] = sum;
}

WEFT_ITEM void starts_item(const Labels& k, int64_t set) {
  int32_t* starts = starts_of(k, set);
  starts[0] = 0;
  for (int64_t g = 0; g < k.counts.shape[2]; ++g) starts[g + 1] += starts[g];
  for (int64_t slot = k.q.time; slot < k.order.shape[1]; ++slot)
    data_of<int32_t>(k.order)[set * k.order.shape[1] + slot] = -1;
}

WEFT_ITEM void place_item(const Labels& k, int64_t i) {
  const Piece piece(k, i);
  const int32_t* starts = starts_of(k, piece.set);
  for (int64_t t = piece.first; t < piece.end; ++t) {
    const int32_t label = piece.labels[t], slot = starts[label] + piece.counts[label]++;
    data_of<int32_t>(k.order)[piece.set * k.order.shape[1] + slot] = static_cast<int32_t>(t);
    data_of<int32_t>(k.sorted)[piece.set * k.q.time + slot] = label;
  }
}

inline void in_items(AnyQueue& queue, const Labels& k) {
  const int64_t size = k.directions.size();
  dispatch(k.q.dtype, [&]<class T>() {
    if (k.centroids) for_items<direction_item<wide_t<T>>>(queue, k, size / k.q.size);
    else for_items<signs_item>(queue, k, (size + kSignsOfCall - 1) / kSignsOfCall);
    for_items<label_item<T>>(queue, k, k.labels.size());
  });
  if (!k.order) return;
  const int64_t sets = k.labels.rows(), pieces = k.counts.shape[1];
  for_items<count_item>(queue, k, sets * pieces);
  for_items<label_total_item>(queue, k, sets * k.counts.shape[2]);
  for_items<starts_item>(queue, k, sets);
  for_items<place_item>(queue, k, sets * pieces);
}

// ---- centroids

template <class T, class W> WEFT_ITEM void inverse_item(const CentroidGradient& k, int64_t i) {
  const int64_t t = i % k.q.time, h = i / k.q.time % k.q.heads, b = i / k.q.time / k.q.heads;
  data_of<W>(k.inverse)[i] = inverse_norm<W>(row_at<const T>(k.q, b, t, h), k.q.size);
}

// A piece of the members of a cluster in one sequence; neighbouring items have neighbouring columns.
template <class T, class W> WEFT_ITEM void partial_item(const CentroidGradient& k, int64_t i) {
  const int64_t size = k.q.size, d = i % size, piece = i / size % kClusterPieces,
                c = i / size / kClusterPieces % k.dm.shape[1],
                set = i / size / kClusterPieces / k.dm.shape[1];
  const int32_t* starts = data_of<const int32_t>(k.starts) + set * k.starts.shape[1] + c;
  const int32_t* order = data_of<const int32_t>(k.order) + set * k.order.shape[1] + starts[0];
  const int64_t members = starts[1] - starts[0];
  W sum = 0;
  for (int64_t m = members * piece / kClusterPieces; m < members * (piece + 1) / kClusterPieces; ++m)
    sum = std::fma(static_cast<W>(row_at<const T>(k.q, set / k.q.heads, order[m], set % k.q.heads)[d]),
                   data_of<const W>(k.inverse)[set * k.q.time + order[m]], sum);
  data_of<W>(k.partial)[i] = sum;
}

template <class W> WEFT_ITEM void sum_item(const CentroidGradient& k, int64_t i) {
  const int64_t size = k.q.size, d = i % size, c = i / size, all = k.dm.size() / size;
  W sum = 0;
  for (int64_t b = 0; b < k.q.batch; ++b)
    for (int64_t piece = 0; piece < kClusterPieces; ++piece)
      sum += data_of<const W>(k.partial)[((b * all + c) * kClusterPieces + piece) * size + d];
  data_of<W>(k.dm)[i] = sum;
}

template <class W> WEFT_ITEM void gradient_item(const CentroidGradient& k, int64_t i) {
  W* dm = data_of<W>(k.dm) + i * k.q.size;
  const W* m = data_of<const W>(k.m) + i * k.q.size;
  const W norm = std::sqrt(dot_rows<W>(dm, dm, k.q.size));
  const W kappa = norm > 0 ? W(1e-4f) * W(k.step->loss_gradient) : W(0), inverse = norm > 0 ? 1 / norm : W(0);
  combine_rows<W>(dm, dm, m, k.q.size, [=](W s, W x) { return kappa * (x - s * inverse); });
}

inline void in_items(AnyQueue& queue, const CentroidGradient& k) {
  dispatch(k.q.dtype, [&]<class T>() {
    using W = wide_t<T>;
    for_items<inverse_item<T, W>>(queue, k, k.inverse.size());
    for_items<partial_item<T, W>>(queue, k, k.partial.size());
    for_items<sum_item<W>>(queue, k, k.dm.size());
    for_items<gradient_item<W>>(queue, k, k.dm.size() / k.q.size);
  });
}

// ---- rows (b, t, h)

template <class T> WEFT_ITEM void keys_item(const SharedKeys& k, int64_t i) {
  using W = wide_t<T>;
  const int64_t size = k.q.size, h = i % k.q.heads, t = i / k.q.heads % k.q.time,
                b = i / k.q.heads / k.q.time;
  const T* q = row_at<const T>(k.q, b, t, h);
  T* key = row_at<T>(k.k, b, t, h);
  const W inverse = k.normed ? W(1) : inverse_norm<W>(q, size);
  if (!k.dq.data) return combine_rows<W>(key, q, q, size, [=](W x, W) { return x * inverse; });
  T* dq = row_at<T>(k.dq, b, t, h);
  const bool scaled = k.normed || inverse >= 1 / W(kLeastNorm);  // by a constant
  const W along = scaled ? W(0) : dot_rows<W>(q, key, size) * inverse * inverse;
  combine_rows<W>(key, key, q, size, [=](W du, W x) { return (du - x * along) * inverse; });
  combine_rows<W>(dq, dq, key, size, [](W a, W b) { return a + b; });
  combine_rows<W>(key, key, key, size, [](W, W) { return W(0); });
}
inline void in_items(AnyQueue& queue, const SharedKeys& k) {
  dispatch(k.q.dtype,
           [&]<class T>() { for_items<keys_item<T>>(queue, k, k.q.batch * k.q.time * k.q.heads); });
}

template <class T> WEFT_ITEM void own_item(const OwnValues& k, int64_t i) {
  using W = wide_t<T>;
  const int64_t t = i % k.y.time, h = i / k.y.time % k.y.heads, b = i / k.y.time / k.y.heads;
  if (data_of<const W>(k.lse)[i] != -W(INFINITY)) return;
  T* y = row_at<T>(k.y, b, t, h);
  combine_rows<W>(y, row_at<const T>(k.x, b, t, h), y, k.y.size,
                  [add = k.add](W x, W old) { return add ? x + old : x; });
}
inline void in_items(AnyQueue& queue, const OwnValues& k) {
  dispatch(k.y.dtype, [&]<class T>() { for_items<own_item<T>>(queue, k, k.lse.size()); });
}
}  // namespace weft::content
