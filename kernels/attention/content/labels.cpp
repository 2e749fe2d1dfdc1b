// SPDX-License-Identifier: MIT
#include "kernels/attention/content/labels_items.h"
#include "kernels/checks.h"

namespace weft {

void check(const LabelDirections& k) {
  expect_size(k.directions, DType::f32, k.directions.size(), "label_directions: directions");
  WEFT_CHECK(k.directions.rank == 3 && k.directions.shape[2] % 8 == 0 && k.directions.shape[2] <= 256,
             "label_directions: directions must be (H or R, C, D), D a multiple of 8 up to 256, got ",
             shape_text(k.directions));
  if (k.centroids)
    expect_size(k.centroids, k.centroids.dtype == DType::f64 ? DType::f64 : DType::f32, k.directions.size(),
                "label_directions: centroids");
}

void check(const Labels& k) {
  const std::int64_t rounds = k.rounds ? k.rounds : 1;
  expect_floating({k.q.data, k.q.dtype}, "labels: q");
  expect_size(k.labels, DType::i32, rounds * k.q.batch * k.q.heads * k.q.time, "labels: labels");
  WEFT_CHECK(k.directions.rank == 3 && k.directions.dtype == DType::f32 && k.q.size % 8 == 0 &&
                 k.directions.shape[0] == (k.rounds ? k.rounds : k.q.heads) &&
                 k.directions.shape[2] == k.q.size && (!k.rounds || k.directions.shape[1] % 2 == 0),
             "labels: directions ", shape_text(k.directions), " of ", name_of(k.directions.dtype), " for ",
             k.q.heads, " heads of ", k.q.size, " and ", k.rounds, " rounds");
}

void check(const LabelOrder& k) {
  WEFT_CHECK(k.labels.rank == 2 && k.counts.rank == 3 && k.order.rank == 2,
             "label_order: (S, T), (S, pieces, ", "G) and (S, slots), got ", shape_text(k.labels), ", ",
             shape_text(k.counts), " and ", shape_text(k.order));
  const std::int64_t sets = k.labels.shape[0], time = k.labels.shape[1];
  expect_size(k.labels, DType::i32, sets * time, "label_order: labels");
  expect_size(k.run, DType::i32, sets * time, "label_order: run");
  expect_size(k.counts, DType::i32, sets * ((time + kLabelPiece - 1) / kLabelPiece) * k.counts.shape[2],
              "label_order: counts");
  expect_matrix(k.starts, DType::i32, sets, k.counts.shape[2] + 1, "label_order: starts");
  expect_matrix(k.order, DType::i32, sets, k.order.shape[1], "label_order: order");
  WEFT_CHECK(k.order.shape[1] >= time && k.heads > 0 && sets % k.heads == 0,
             "label_order: ", k.order.shape[1], " slots for ", time, " positions, ", sets, " sets of ",
             k.heads, " heads");
  if (k.documents)
    expect_matrix(k.documents, DType::i32, k.documents.shape[0], time, "label_order: documents");
}

void check(const ClusterSums& k) {
  const DType w = wide(k.q.dtype);
  const std::int64_t sets = k.q.batch * k.q.heads;
  WEFT_CHECK(k.sums.rank == 3 && k.sums.shape[0] == k.q.heads && k.sums.shape[2] == k.q.size &&
                 k.q.size % 8 == 0 && k.order.rank == 2 && k.starts.rank == 2,
             "cluster_sums: sums ", shape_text(k.sums), " for ", k.q.heads, " heads of ", k.q.size);
  expect_size(k.sums, w, k.sums.size(), "cluster_sums: sums");
  expect_size(k.partial, w, k.q.batch * k.sums.size() * kClusterPieces, "cluster_sums: partial");
  expect_size(k.inverse, w, sets * k.q.time, "cluster_sums: inverse");
  expect_matrix(k.order, DType::i32, sets, k.order.shape[1], "cluster_sums: order");
  expect_matrix(k.starts, DType::i32, sets, k.sums.shape[1] + 1, "cluster_sums: starts");
}

void check(const CentroidGradient& k) {
  WEFT_CHECK(k.sums.rank == 3 && k.step, "centroid_gradient: (H, C, D) and a step, got ", shape_text(k.sums));
  for (const TensorView& x : {k.dm.view, k.sums, k.m})
    expect_size(x, wide(k.sums.dtype), k.sums.size(), "centroid_gradient: dm, sums and m");
}

void compute(CpuQueue& queue, const LabelDirections& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const Labels& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const LabelOrder& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const ClusterSums& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const CentroidGradient& k) { content::in_items(queue, k); }

}  // namespace weft
