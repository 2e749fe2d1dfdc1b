// SPDX-License-Identifier: MIT
// Attention by content on the CPU: plain loops, the definition of its kernels. Items run in
// parallel.
#include "kernels/attention/check.h"
#include "kernels/attention/content/lists.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace weft {
namespace {
// Sizes of one type.
struct Expect {
  const char* kernel;
  DType dtype;

  void operator()(int64_t elements, const std::vector<TensorView>& views) const {
    for (const TensorView& x : views) expect_size(x, dtype, elements, kernel);
  }
};

void expect_like(const char* kernel, const HeadsView& x, const HeadsView& other) {
  check_heads(kernel, x, other.batch, other.time, other.heads, other.size, other.dtype);
  WEFT_CHECK(x.size % 8 == 0, kernel, ": heads of ", x.size, " features; multiples of 8 work");
}

// What lists at most `longest` keys of these heads.
template <class K>
void expect_list(const K& k, int64_t batch, int64_t heads, int64_t longest) {
  WEFT_CHECK(k.list.rank == 3 && k.list.cols() >= longest && k.heads.count == heads &&
                 k.list.shape[0] == batch && k.heads.head(heads - 1) < k.list.shape[1],
             K::kName, ": lists ", shape_text(k.list), " for ", longest, " keys of ", heads,
             " heads");
  const Expect i32{K::kName, DType::i32};
  i32(k.list.size(), {k.list}), i32(k.list.rows(), {k.count});
}

template <class T>
void label_item(const Labels& k, int64_t i) {
  const int64_t set = i / k.q.time, h = set % k.q.heads, b = set / k.q.heads % k.q.batch,
                size = k.q.size;
  const T* q = k.q.row<const T>(b, i % k.q.time, h);
  const float* rows = content::directions_of(k, set / k.q.heads / k.q.batch, h);
  const auto columns = static_cast<int32_t>(k.directions.shape[1]), half = columns / 2;
  content::Largest<1, false> cluster;
  content::Largest<1, true> first, second;
  for (int32_t c = 0; c < (k.centroids ? columns : half); c += 8) {
    float s[1][8];
    content::dots(s, q, 0, rows + c * size, (k.centroids ? columns : half) - c, size);
    k.centroids ? cluster.take<0, 8>(s, c) : first.take<0, 8>(s, c);
    if (k.centroids) continue;
    content::dots(s, q, 0, rows + (half + c) * size, half - c, size);
    second.take<0, 8>(s, c);
  }
  k.labels.as<int32_t>()[i] = k.centroids
                                  ? cluster.place[0]
                                  : first.of_signed(0, half) * columns + second.of_signed(0, half);
}

void sort(const Labels& k) {
  const int64_t time = k.q.time, count = k.starts.cols() - 1;
#pragma omp parallel for
  for (int64_t set = 0; set < k.labels.rows(); ++set) {
    const int32_t* labels = k.labels.as<int32_t>() + set * time;
    int32_t *starts = k.starts.as<int32_t>() + set * (count + 1),
            *order = k.order.as<int32_t>() + set * k.order.cols(),
            *sorted = k.sorted.as<int32_t>() + set * time;
    std::fill_n(starts, count + 1, 0);
    for (int64_t t = 0; t < time; ++t) ++starts[labels[t] + 1];
    std::partial_sum(starts, starts + count + 1, starts);
    std::fill(order + time, order + k.order.cols(), -1);
    std::vector<int32_t> next(starts, starts + count);
    for (int64_t t = 0; t < time; ++t) {
      const int32_t slot = next[static_cast<std::size_t>(labels[t])]++;
      order[slot] = static_cast<int32_t>(t), sorted[slot] = labels[t];
    }
  }
}
}  // namespace

void check(const Labels& k) {
  const Expect i32{k.kName, DType::i32}, f32{k.kName, DType::f32};
  const int64_t rounds = k.labels.shape[0], sets = rounds * k.q.batch * k.q.heads,
                columns = k.directions.shape[1], labels = k.centroids ? columns : columns * columns;
  expect_like(k.kName, k.q, k.q);
  i32(sets * k.q.time, {k.labels});
  f32((k.centroids ? k.q.heads : rounds) * columns * k.q.size, {k.directions});
  WEFT_CHECK(k.centroids ? k.centroids.size() == k.directions.size() && rounds == 1
                         : columns % 2 == 0 && columns <= kMostHashColumns,
             k.kName, ": directions ", shape_text(k.directions), " in ", rounds, " rounds");
  if (!k.order) return;
  i32(sets * k.order.cols(), {k.order}), i32(sets * k.q.time, {k.sorted}),
      i32(sets * (labels + 1), {k.starts});
}

void check(const CentroidGradient& k) {
  const Expect i32{k.kName, DType::i32}, w{k.kName, wide(k.q.dtype)};
  const int64_t sets = k.q.batch * k.q.heads, clusters = k.dm.shape[1], size = clusters * k.q.size;
  w(k.q.heads * size, {k.dm, k.m}), w(sets * size * kClusterPieces, {k.partial});
  i32(sets * k.order.cols(), {k.order}), i32(sets * (clusters + 1), {k.starts});
}

void check(const SharedKeys& k) {
  expect_like(k.kName, k.k, k.q);
  if (k.dq) expect_like(k.kName, k.dq, k.q);
}

void check(const OwnValues& k) {
  expect_like(k.kName, k.y, k.x);
  expect_size(k.lse, wide(k.y.dtype), k.y.batch * k.y.heads * k.y.time, k.kName);
}

void check(const BlockMaps& k) {
  const Expect i32{k.kName, DType::i32}, f32{k.kName, DType::f32};
  const int64_t sets = k.q.batch * k.q.heads, blocks = (k.q.time + k.block - 1) / k.block;
  expect_like(k.kName, k.k, k.q);
  WEFT_CHECK(k.made && k.map && k.block % kTile == 0, k.kName, ": blocks of ", k.block);
  f32(sets * k.q.size * blocks, {k.sums}), f32(sets * blocks * blocks, {k.gates});
  i32(sets * blocks * k.chosen.cols(), {k.chosen}), i32(sets * k.col_start.cols(), {k.col_start});
  i32(sets * k.row_tile.cols(), {k.row_tile, k.col_tile, k.col_mask});
}

void check(const LabelList& k) {
  const Expect i32{k.kName, DType::i32};
  const int64_t* m = k.members.shape;
  expect_list(k, m[0], m[2], m[1] * m[4]);
  i32(k.members.size(), {k.members}), i32(k.members.rows(), {k.sizes});
  i32(m[0] * m[1] * m[2] * k.labels.shape[3], {k.labels});
}

void check(const BlockList& k) {
  const Expect i32{k.kName, DType::i32}, f32{k.kName, DType::f32};
  const int64_t sets = k.q.batch * k.q.heads, blocks = k.sums.shape[2];
  expect_like(k.kName, k.k, k.q);
  expect_list(k, k.q.batch, k.q.heads, k.chosen.cols() * k.block);
  f32(sets * k.q.size * blocks, {k.sums}), f32(sets * blocks, {k.gates});
  i32(sets * k.chosen.cols(), {k.chosen});
}

void compute(CpuQueue& queue, const Labels& k) {
  content::directions_in_items(queue, k);
  dispatch_float(k.q.dtype,
                 [&]<class T>() { content::for_items<label_item<T>>(queue, k, k.labels.size()); });
  if (k.order) sort(k);
}

void compute(CpuQueue& queue, const CentroidGradient& k) { content::in_items(queue, k); }

void compute(CpuQueue& queue, const SharedKeys& k) { content::in_items(queue, k); }

void compute(CpuQueue& queue, const OwnValues& k) { content::in_items(queue, k); }

void compute(CpuQueue& queue, const BlockMaps& k) { content::in_items(queue, k); }

void compute(CpuQueue& queue, const LabelList& k) { content::in_items(queue, k); }

void compute(CpuQueue& queue, const BlockList& k) { content::in_items(queue, k); }
}  // namespace weft
