// SPDX-License-Identifier: MIT
#include "kernels/attention/content/labels_items.h"

namespace weft {

void check(const LabelDirections& k) {
  expect_size(k.directions, DType::f32, k.directions.size(), "content_directions: directions");
  WEFT_CHECK(k.directions.rank == 3 && k.directions.shape[2] % 8 == 0 &&
                 (!k.centroids || k.centroids.size() == k.directions.size()),
             "content_directions: ", shape_text(k.directions), " of centroids ", shape_text(k.centroids));
}

void check(const Labels& k) {
  const std::int64_t sets = k.rounds ? k.rounds : k.q.heads;
  expect_size(k.labels, DType::i32, (k.rounds ? k.rounds : 1) * k.q.batch * k.q.heads * k.q.time, "labels");
  WEFT_CHECK(k.directions.rank == 3 && k.directions.dtype == DType::f32 && k.q.size % 8 == 0 &&
                 k.directions.shape[0] == sets && k.directions.shape[2] == k.q.size &&
                 (!k.rounds || k.directions.shape[1] % 2 == 0),
             "content_labels: directions ", shape_text(k.directions), " for ", k.q.heads, " heads of ",
             k.q.size);
}

void check(const LabelOrder& k) {
  const std::int64_t sets = k.labels.shape[0], time = k.labels.shape[1], labels = k.counts.shape[2];
  expect_matrix(k.labels, DType::i32, sets, time, "content_order: labels");
  expect_matrix(k.run, DType::i32, sets, time, "content_order: run");
  expect_matrix(k.starts, DType::i32, sets, labels + 1, "content_order: starts");
  expect_matrix(k.order, DType::i32, sets, k.order.cols(), "content_order: order");
  expect_size(k.counts, DType::i32, sets * ((time + kLabelPiece - 1) / kLabelPiece) * labels,
              "content_order: counts");
  WEFT_CHECK(k.order.cols() >= time && sets % k.heads == 0 && (!k.documents || k.documents.cols() == time),
             "content_order: ", k.order.cols(), " slots for ", time, " positions of ", sets, " sets");
}

void check(const ClusterSums& k) {
  const DType w = wide(k.q.dtype);
  const std::int64_t sets = k.q.batch * k.q.heads;
  expect_size(k.sums, w, k.q.heads * k.sums.shape[1] * k.q.size, "content_cluster_sums: sums");
  expect_size(k.partial, w, k.q.batch * k.sums.size() * kClusterPieces, "content_cluster_sums: partial");
  expect_size(k.inverse, w, sets * k.q.time, "content_cluster_sums: inverse");
  expect_matrix(k.order, DType::i32, sets, k.order.cols(), "content_cluster_sums: order");
  expect_matrix(k.starts, DType::i32, sets, k.sums.shape[1] + 1, "content_cluster_sums: starts");
}

void check(const CentroidGradient& k) {
  WEFT_CHECK(k.sums.rank == 3 && k.step, "content_centroid_gradient: needs sums (H, C, D) and a step");
  for (const TensorView& x : {k.dm.view, k.sums, k.m})
    expect_size(x, wide(k.sums.dtype), k.sums.size(), "content_centroid_gradient: dm, sums and m");
}

void compute(CpuQueue& queue, const LabelDirections& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const Labels& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const LabelOrder& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const ClusterSums& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const CentroidGradient& k) { content::in_items(queue, k); }

}  // namespace weft
