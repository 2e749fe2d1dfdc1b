// SPDX-License-Identifier: MIT
// The label of a position, of which windows are made: of a cluster (Routing Transformer, Roy et al. 2020,
// arXiv 2003.05997) or of a bucket (Reformer, Kitaev et al. 2020, arXiv 2001.04451). Labels have no gradient.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/step_scalars.h"

namespace weft {

// What labels compare queries with. Clusters: centroids, divided by their norms. Buckets: signs, +1 or -1, of
// Philox with counter (place of 128 signs, site, draw): in training of each update, else draw 0.
struct LabelDirections {
  static constexpr const char* kName = "content_directions";
  TensorView directions;  // (H, C, D) of clusters; (R, C, D) of buckets  f32
  TensorView centroids;   // (H, C, D)  wide(T), or absent: signs
  std::uint64_t seed = 0;
  std::uint32_t site = 0;
  const StepScalars* step = nullptr;  // null: draw 0
};
WEFT_KERNEL(LabelDirections);

// Clusters (`rounds` 0): the c of the largest q . direction_c, in f32; ties go to the lowest, NaN never wins.
// Buckets: of C columns two halves s, t: C argmax(q s, -q s) + argmax(q t, -q t), for each round.
struct Labels {
  static constexpr const char* kName = "content_labels";
  TensorView labels;      // (R, B, H, T)  i32; R 1 of clusters
  HeadsView q;            // (B, T, H, D)  T
  TensorView directions;  // as above
  std::int32_t rounds = 0;
};
WEFT_KERNEL(Labels);

// A stable counting sort by (label, position) of each set of T labels, S = R B H.
struct LabelOrder {
  static constexpr const char* kName = "content_order";
  TensorView order;      // (S, slots)  i32: slot -> position, -1 from T on
  TensorView run;        // (S, T)      i32: slot -> first slot of its label (and document)
  TensorView starts;     // (S, G + 1)  i32: first slot of each label
  TensorView counts;     // (S, pieces, G)  i32: scratch; T / pieces positions are counted at a time
  TensorView labels;     // (S, T)      i32 in [0, G)
  TensorView documents;  // (B, T)      i32: first position of each position's document; or absent
  std::int64_t heads = 1;
};
WEFT_KERNEL(LabelOrder);
constexpr std::int64_t kLabelPiece = 128;

// sums_c = sum of q_i / |q_i| over the members i of cluster c, of all sequences, in a fixed order.
struct ClusterSums {
  static constexpr const char* kName = "content_cluster_sums";
  TensorView sums;           // (H, C, D)             wide(T)
  TensorView partial;        // (B, H, C, pieces, D)  wide(T): scratch
  TensorView inverse;        // (B, H, T)             wide(T): scratch, 1 / |q|
  HeadsView q;               // (B, T, H, D)          T
  TensorView order, starts;  // of LabelOrder
};
WEFT_KERNEL(ClusterSums);
constexpr std::int64_t kClusterPieces = 16;

// Spherical k-means as a gradient: dm_c = kappa (m_c - sums_c / |sums_c|), 0 for a cluster without members,
// kappa = 1e-4 loss_gradient: small beside the clip, and AdamW's steps do not depend on it.
struct CentroidGradient {
  static constexpr const char* kName = "content_centroid_gradient";
  GradView dm;         // (H, C, D)  wide(T)
  TensorView sums, m;  // (H, C, D)  wide(T)
  const StepScalars* step = nullptr;
};
WEFT_KERNEL(CentroidGradient);

}  // namespace weft
