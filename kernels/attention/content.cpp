// SPDX-License-Identifier: MIT
#include "kernels/attention/check.h"
#include "kernels/attention/content_lists.h"

namespace weft {
namespace {
struct Size {
  TensorView x;
  DType dtype;
  int64_t elements;
};
void expect(const char* kernel, const std::vector<Size>& sizes) {
  for (const Size& s : sizes) expect_size(s.x, s.dtype, s.elements, kernel);
}
void expect_like(const char* kernel, const HeadsView& x, const HeadsView& other) {
  check_heads(kernel, x, other.batch, other.time, other.heads, other.size, other.dtype);
  WEFT_CHECK(x.size % 8 == 0, kernel, ": heads of ", x.size, " features; multiples of 8 work");
}
// What lists at most `longest` keys of these heads.
template <class K> void expect_list(const K& k, int64_t batch, int64_t heads, int64_t longest) {
  WEFT_CHECK(k.list.rank == 3 && k.list.cols() >= longest && k.heads.count == heads &&
                 k.list.shape[0] == batch && k.heads.head(heads - 1) < k.list.shape[1],
             K::kName, ": lists ", shape_text(k.list), " for ", longest, " keys of ", heads, " heads");
  expect(K::kName, {{k.list, DType::i32, k.list.size()}, {k.count, DType::i32, k.list.rows()}});
}
}  // namespace

void check(const Labels& k) {
  const int64_t rounds = k.labels.shape[0], sets = rounds * k.q.batch * k.q.heads,
                columns = k.directions.shape[1], labels = k.centroids ? columns : columns * columns,
                of_head = k.centroids ? k.q.heads : rounds;
  expect_like(k.kName, k.q, k.q);
  expect(k.kName,
         {{k.labels, DType::i32, sets * k.q.time}, {k.directions, DType::f32, of_head * columns * k.q.size}});
  WEFT_CHECK(k.centroids ? k.centroids.size() == k.directions.size() && rounds == 1 : columns % 2 == 0,
             k.kName, ": directions ", shape_text(k.directions), " in ", rounds, " rounds");
  if (k.order)
    expect(k.kName, {{k.order, DType::i32, sets * k.order.cols()},
                     {k.sorted, DType::i32, sets * k.q.time},
                     {k.starts, DType::i32, sets * (labels + 1)},
                     {k.counts, DType::i32, sets * ((k.q.time + kLabelPiece - 1) / kLabelPiece) * labels}});
}

void check(const CentroidGradient& k) {
  const DType w = wide(k.q.dtype);
  const int64_t sets = k.q.batch * k.q.heads, clusters = k.dm.shape[1], size = clusters * k.q.size;
  expect(k.kName, {{k.dm, w, k.q.heads * size},
                   {k.m, w, k.q.heads * size},
                   {k.partial, w, sets * size * kClusterPieces},
                   {k.inverse, w, sets * k.q.time},
                   {k.order, DType::i32, sets * k.order.cols()},
                   {k.starts, DType::i32, sets * (clusters + 1)}});
}

void check(const SharedKeys& k) {
  expect_like(k.kName, k.k, k.q);
  if (k.dq) expect_like(k.kName, k.dq, k.q);
}

void check(const OwnValues& k) {
  expect_like(k.kName, k.y, k.x);
  expect(k.kName, {{k.lse, wide(k.y.dtype), k.y.batch * k.y.heads * k.y.time}});
}

void check(const BlockMaps& k) {
  const int64_t sets = k.q.batch * k.q.heads, blocks = (k.q.time + k.block - 1) / k.block,
                entries = k.row_tile.cols();
  expect_like(k.kName, k.k, k.q);
  WEFT_CHECK(k.made && k.map && k.block % kTile == 0, k.kName, ": blocks of ", k.block);
  expect(k.kName, {{k.sums, DType::f32, sets * k.q.size * blocks},
                   {k.gates, DType::f32, sets * blocks * blocks},
                   {k.chosen, DType::i32, sets * blocks * k.chosen.cols()},
                   {k.row_tile, DType::i32, sets * entries},
                   {k.col_tile, DType::i32, sets * entries},
                   {k.col_mask, DType::i32, sets * entries},
                   {k.col_start, DType::i32, sets * k.col_start.cols()}});
}

void check(const LabelList& k) {
  const int64_t* m = k.members.shape;
  expect_list(k, m[0], m[2], m[1] * m[4]);
  expect(k.kName, {{k.members, DType::i32, k.members.size()},
                   {k.sizes, DType::i32, k.members.rows()},
                   {k.labels, DType::i32, m[0] * m[1] * m[2] * k.labels.shape[3]}});
}

void check(const BlockList& k) {
  const int64_t sets = k.q.batch * k.q.heads, blocks = k.sums.shape[2];
  expect_like(k.kName, k.k, k.q);
  expect_list(k, k.q.batch, k.q.heads, k.chosen.cols() * k.block);
  expect(k.kName, {{k.sums, DType::f32, sets * k.q.size * blocks},
                   {k.gates, DType::f32, sets * blocks},
                   {k.chosen, DType::i32, sets * k.chosen.cols()}});
}

void compute(CpuQueue& queue, const Labels& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const CentroidGradient& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const SharedKeys& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const OwnValues& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const BlockMaps& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const LabelList& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const BlockList& k) { content::in_items(queue, k); }
}  // namespace weft
