// SPDX-License-Identifier: MIT
// The definitions of labels.h, for CPU and CUDA.
#pragma once

#include "kernels/attention/content/items.h"
#include "kernels/attention/content/labels.h"
#include "kernels/philox.h"

namespace weft::content {

// ---- directions

constexpr int64_t kSignsOfCall = 128;  // bits of a Philox block

WEFT_ITEM void signs_item(const LabelDirections& k, int64_t i) {
  const int64_t first = i * kSignsOfCall, size = k.directions.size();
  const uint32_t draw = k.step ? static_cast<uint32_t>(k.step->draw) : 0;
  const Philox4 bits = philox4x32({static_cast<uint32_t>(i), 0, k.site, draw}, k.seed);
  for (int64_t e = 0; e < kSignsOfCall && first + e < size; ++e)
    data_of<float>(k.directions)[first + e] = bits[e / 32] >> e % 32 & 1 ? 1.0f : -1.0f;
}

template <class W>
WEFT_ITEM void centroid_item(const LabelDirections& k, int64_t i) {
  const int64_t size = k.directions.shape[2];
  const W* centroid = data_of<const W>(k.centroids) + i * size;
  const W inverse = inverse_norm<W>(centroid, size);
  combine_rows<W>(data_of<float>(k.directions) + i * size, centroid, centroid, size,
                  [inverse](W m, W) { return m * inverse; });
}

template <class Queue>
void in_items(Queue& queue, const LabelDirections& k) {
  const int64_t size = k.directions.size();
  if (!k.centroids) return for_items<signs_item>(queue, k, (size + kSignsOfCall - 1) / kSignsOfCall);
  dispatch_wide(queue, k.centroids.dtype,
                [&]<class W>() { for_items<centroid_item<W>>(queue, k, size / k.directions.shape[2]); });
}

// ---- labels

// The place of the largest of q . rows[c], c < count, or with `both` of those and then of their negatives.
template <class T, int P>
WEFT_ITEM int32_t largest(const Query<T, P>& q, const float* rows, int32_t count, bool both) {
  int32_t best = 0, best_negative = 0;
  float top = -INFINITY, top_negative = -INFINITY;
  for (int32_t c = 0; c < count; ++c) {
    const float* row = rows + c * q.size;
    const float s = q.dot([=](float* x, int64_t d) { read_eight(x, row + d); });
    if (s > top) top = s, best = c;
    if (-s > top_negative) top_negative = -s, best_negative = c;
  }
  return both && top_negative > top ? count + best_negative : best;
}

template <class T, int P>
WEFT_ITEM void label_item(const Labels& k, int64_t i) {
  const int64_t t = i % k.q.time, h = i / k.q.time % k.q.heads, b = i / k.q.time / k.q.heads % k.q.batch,
                r = i / k.q.time / k.q.heads / k.q.batch, size = k.q.size;
  const Query<T, P> q(row_at<const T>(k.q, b, t, h), size);
  const auto columns = static_cast<int32_t>(k.directions.shape[1]);
  const float* rows = data_of<const float>(k.directions) + (k.rounds ? r : h) * columns * size;
  const int32_t half = columns / 2;
  data_of<int32_t>(k.labels)[i] =
      k.rounds ? largest(q, rows, half, true) * columns + largest(q, rows + half * size, half, true)
               : largest(q, rows, columns, false);
}

template <class Queue>
void in_items(Queue& queue, const Labels& k) {
  dispatch(queue, k.q.dtype, [&]<class T>() {
    with_size(k.q.size, [&]<int P>() { for_items<label_item<T, P>>(queue, k, k.labels.size()); });
  });
}

// ---- order

// Scratch as (set, piece, label).
WEFT_ITEM int32_t* counts_of(const LabelOrder& k, int64_t set, int64_t piece) {
  return data_of<int32_t>(k.counts) + (set * k.counts.shape[1] + piece) * k.counts.shape[2];
}
WEFT_ITEM int32_t* starts_of(const LabelOrder& k, int64_t set) {
  return data_of<int32_t>(k.starts) + set * k.starts.shape[1];
}

WEFT_ITEM void count_item(const LabelOrder& k, int64_t i) {
  const int64_t pieces = k.counts.shape[1], set = i / pieces, piece = i % pieces, time = k.labels.shape[1];
  int32_t* counts = counts_of(k, set, piece);
  for (int64_t g = 0; g < k.counts.shape[2]; ++g) counts[g] = 0;
  const int32_t* labels = data_of<const int32_t>(k.labels) + set * time;
  for (int64_t t = piece * kLabelPiece; t < time && t < (piece + 1) * kLabelPiece; ++t) ++counts[labels[t]];
}

// Counts of a label become its first place in each piece, relative to the label.
WEFT_ITEM void label_total_item(const LabelOrder& k, int64_t i) {
  const int64_t labels = k.counts.shape[2], set = i / labels, label = i % labels;
  int32_t sum = 0;
  for (int64_t piece = 0; piece < k.counts.shape[1]; ++piece) {
    int32_t& count = counts_of(k, set, piece)[label];
    const int32_t before = sum;
    sum += count;
    count = before;
  }
  starts_of(k, set)[label + 1] = sum;
}

WEFT_ITEM void starts_item(const LabelOrder& k, int64_t set) {
  int32_t* starts = starts_of(k, set);
  starts[0] = 0;
  for (int64_t g = 0; g < k.counts.shape[2]; ++g) starts[g + 1] += starts[g];
}

WEFT_ITEM void place_item(const LabelOrder& k, int64_t i) {
  const int64_t pieces = k.counts.shape[1], set = i / pieces, piece = i % pieces, time = k.labels.shape[1];
  int32_t *next = counts_of(k, set, piece), *order = data_of<int32_t>(k.order) + set * k.order.shape[1];
  const int32_t *labels = data_of<const int32_t>(k.labels) + set * time, *starts = starts_of(k, set);
  for (int64_t t = piece * kLabelPiece; t < time && t < (piece + 1) * kLabelPiece; ++t)
    order[starts[labels[t]] + next[labels[t]]++] = static_cast<int32_t>(t);
}

// The first of order[low .. high - 1], which ascend, that is not below `position`; else high.
WEFT_ITEM int32_t first_from(const int32_t* order, int32_t low, int32_t high, int32_t position) {
  while (low < high) {
    const int32_t middle = (low + high) / 2;
    if (order[middle] < position)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

WEFT_ITEM void run_item(const LabelOrder& k, int64_t i) {
  const int64_t slots = k.order.shape[1], set = i / slots, slot = i % slots, time = k.labels.shape[1];
  int32_t* order = data_of<int32_t>(k.order) + set * slots;
  if (slot >= time) {
    order[slot] = -1;
    return;
  }
  const int32_t position = order[slot],
                start = starts_of(k, set)[data_of<const int32_t>(k.labels)[set * time + position]];
  const int64_t b = set / k.heads % (k.documents ? k.documents.shape[0] : 1);
  data_of<int32_t>(k.run)[set * time + slot] =
      k.documents ? first_from(order, start, static_cast<int32_t>(slot),
                               data_of<const int32_t>(k.documents)[b * time + position])
                  : start;
}

template <class Queue>
void in_items(Queue& queue, const LabelOrder& k) {
  const int64_t sets = k.counts.shape[0], pieces = k.counts.shape[1], labels = k.counts.shape[2];
  for_items<count_item>(queue, k, sets * pieces);
  for_items<label_total_item>(queue, k, sets * labels);
  for_items<starts_item>(queue, k, sets);
  for_items<place_item>(queue, k, sets * pieces);
  for_items<run_item>(queue, k, sets * k.order.shape[1]);
}

// ---- centroids

template <class T, class W>
WEFT_ITEM void inverse_item(const ClusterSums& k, int64_t i) {
  const int64_t t = i % k.q.time, h = i / k.q.time % k.q.heads, b = i / k.q.time / k.q.heads;
  data_of<W>(k.inverse)[i] = inverse_norm<W>(row_at<const T>(k.q, b, t, h), k.q.size);
}

// A piece of the members of a cluster in one sequence; neighbouring items have neighbouring columns.
template <class T, class W>
WEFT_ITEM void partial_item(const ClusterSums& k, int64_t i) {
  const int64_t size = k.q.size, d = i % size, piece = i / size % kClusterPieces,
                c = i / size / kClusterPieces % k.sums.shape[1],
                set = i / size / kClusterPieces / k.sums.shape[1];
  const int32_t* starts = data_of<const int32_t>(k.starts) + set * k.starts.shape[1] + c;
  const int64_t members = starts[1] - starts[0];
  const int32_t* order = data_of<const int32_t>(k.order) + set * k.order.shape[1] + starts[0];
  W sum = 0;
  for (int64_t m = members * piece / kClusterPieces; m < members * (piece + 1) / kClusterPieces; ++m)
    sum = fma_of(static_cast<W>(row_at<const T>(k.q, set / k.q.heads, order[m], set % k.q.heads)[d]),
                 data_of<const W>(k.inverse)[set * k.q.time + order[m]], sum);
  data_of<W>(k.partial)[i] = sum;
}

template <class W>
WEFT_ITEM void sum_item(const ClusterSums& k, int64_t i) {
  const int64_t size = k.q.size, d = i % size, c = i / size, of_set = k.sums.size() / size;
  W sum = 0;
  for (int64_t b = 0; b < k.q.batch; ++b)
    for (int64_t piece = 0; piece < kClusterPieces; ++piece)
      sum += data_of<const W>(k.partial)[((b * of_set + c) * kClusterPieces + piece) * size + d];
  data_of<W>(k.sums)[i] = sum;
}

template <class Queue>
void in_items(Queue& queue, const ClusterSums& k) {
  dispatch(queue, k.q.dtype, [&]<class T>() {
    using W = wide_t<T>;
    for_items<inverse_item<T, W>>(queue, k, k.q.batch * k.q.heads * k.q.time);
    for_items<partial_item<T, W>>(queue, k, k.q.batch * k.sums.size() * kClusterPieces);
    for_items<sum_item<W>>(queue, k, k.sums.size());
  });
}

template <class W>
WEFT_ITEM void gradient_item(const CentroidGradient& k, int64_t i) {
  const int64_t size = k.sums.shape[2];
  const W *sums = data_of<const W>(k.sums) + i * size, *m = data_of<const W>(k.m) + i * size;
  W* dm = data_of<W>(k.dm.view) + i * size;
  const W norm = std::sqrt(dot_rows<W>(sums, sums, size));
  const W kappa = norm > 0 ? W(1e-4f) * W(k.step->loss_gradient) : W(0), inverse = norm > 0 ? 1 / norm : W(0);
  for (int64_t d = 0; d < size; ++d)
    dm[d] = (k.dm.accumulate ? dm[d] : W(0)) + kappa * (m[d] - sums[d] * inverse);
}

template <class Queue>
void in_items(Queue& queue, const CentroidGradient& k) {
  dispatch_wide(queue, k.sums.dtype,
                [&]<class W>() { for_items<gradient_item<W>>(queue, k, k.sums.shape[0] * k.sums.shape[1]); });
}

}  // namespace weft::content
