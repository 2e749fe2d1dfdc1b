// SPDX-License-Identifier: MIT
// What attention needs where content decides which keys a query sees. Clusters are those of the
// Routing Transformer (Roy et al. 2020, arXiv 2003.05997), buckets those of the Reformer (Kitaev et
// al. 2020, arXiv 2001.04451), blocks those of MoBA (Lu et al. 2025, arXiv 2502.13189), chosen by
// the first query of a block, which knows no later token. Labels and choices have no gradient.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/step_scalars.h"

namespace weft {
// These heads of a view of all.
inline HeadsView heads_in(HeadsView x, const HeadRange& range) {
  x.data = static_cast<char*>(x.data) + range.first * x.head_stride * size_of(x.dtype);
  x.head_stride *= range.step;
  x.heads = range.count;
  return x;
}

// Labels of queries. Clusters: the c of the largest q . m_c / |m_c|, in f32; ties go to the lowest,
// NaN never wins. Buckets: of C columns of signs two halves s, t: C argmax(q s, -q s) + argmax(q t,
// -q t), in each round; signs are bits of Philox with counter (place of 128 signs, site, draw), of
// each update in training. With `order`, a stable counting sort by (label, position) of each of the
// S = R B H sets of T labels.
struct Labels {
  static constexpr const char* kName = "content_labels";
  TensorView labels;      // (R, B, H, T)  i32 in [0, G); R 1 of clusters
  TensorView directions;  // (H, C, D) m_c / |m_c|, or (R, C, D) signs  f32: scratch
  HeadsView q;            // (B, T, H, D)  T
  TensorView centroids;   // (H, C, D)  wide(T); or absent: buckets
  uint64_t seed = 0;
  uint32_t site = 0;
  const StepScalars* step = nullptr;  // null: draw 0
  TensorView order{};                 // (S, slots)  i32: slot -> position, -1 from T on; or absent
  TensorView sorted{};                // (S, T)      i32: labels by slot
  TensorView starts{};                // (S, G + 1)  i32: first slot of each label
};

WEFT_KERNEL(Labels);
constexpr int kMostHashColumns = 32;  // of a round

// Spherical k-means as a gradient: dm_c = kappa (m_c - s_c / |s_c|), s_c = sum of q_i / |q_i| over
// the members of cluster c, of all sequences, in a fixed order; 0 without members. kappa = 1e-4
// loss_gradient: small beside the clip, and AdamW's steps do not depend on it.
struct CentroidGradient {
  static constexpr const char* kName = "content_centroid_gradient";
  TensorView dm, m;          // (H, C, D)             wide(T)
  TensorView partial;        // (B, H, C, pieces, D)  wide(T): scratch
  HeadsView q;               // (B, T, H, D)          T
  TensorView order, starts;  // of Labels
  const StepScalars* step = nullptr;
};

WEFT_KERNEL(CentroidGradient);
constexpr int64_t kClusterPieces = 16;

// Keys of labels are made of queries, as in causal Reformers: k_j = u_j = q_j / max(|q_j|, 1e-6),
// or q_j where they are `normed` already. With dq, backward, k holds dk: dq += (dk - u (u . dk)) /
// |q|, then dk = 0.
struct SharedKeys {
  static constexpr const char* kName = "content_shared_keys";
  HeadsView k, q;  // (B, T, H, D)  T
  HeadsView dq{};  // like k; or absent
  bool normed = false;
};

WEFT_KERNEL(SharedKeys);

// A query that finds no key sees its own value: y_i = x_i where lse_i = -inf; backward y_i += x_i.
struct OwnValues {
  static constexpr const char* kName = "content_own_values";
  HeadsView y, x;  // (B, T, H, Dv)  T
  TensorView lse;  // (B, H, T)      wide(T)
  bool add = false;
};

WEFT_KERNEL(OwnValues);

// sums_g = sum of k_j over block g, in order, in f32. Query block t chooses the K - 1 blocks g < t
// of the largest q_(t block) . sums_g (ties: the lowest g; NaN last) and itself. Tile maps of each
// (batch, head): `map` with the chosen blocks in place of the last ones.
struct BlockMaps {
  static constexpr const char* kName = "content_block_maps";
  // (B H, entries), (B H, tiles + 1), (B H, entries) x 2
  TensorView row_tile, col_start, col_tile, col_mask;
  TileMap* made = nullptr;       // (B H)  in the queue's memory, like `map`
  const TileMap* map = nullptr;  // of block_window(block, K)
  // (B, H, blocks, K)       i32: ascending, then -1
  TensorView chosen;
  TensorView sums;        // (B, H, blocks, D)       f32: scratch
  TensorView gates;       // (B, H, blocks, blocks)  f32: scratch
  HeadsView q, k;         // (B, T, H, D)  T
  int64_t block = kTile;  // a multiple of kTile
};

WEFT_KERNEL(BlockMaps);

// ---- sampling: the keys that the query at the last of `count` positions from *position on sees,
// listed for AttentionDecode, and the state that they come from. Position 0 begins afresh.

// The last `w` members of each label are at members[n % w], n = 0, 1, ... The list is that of each
// round, one after the other; the own position where all are empty. It is made for a single
// position.
struct LabelList {
  static constexpr const char* kName = "content_label_list";
  TensorView list, count;     // (B, all heads, longest), (B, all heads)  i32: of heads in the range
  TensorView members, sizes;  // (B, R, H, G, w), (B, R, H, G)  i32
  TensorView labels;          // (R, B, H, positions)           i32
  const int32_t* position;    // in the queue's memory
  HeadRange heads;
};

WEFT_KERNEL(LabelList);

// Keys join the sums of their blocks, whose first queries choose as for BlockMaps. The list: chosen
// blocks.
struct BlockList {
  static constexpr const char* kName = "content_block_list";
  TensorView list, count;  // as above
  TensorView sums;         // (B, H, blocks, D)       f32
  TensorView chosen;       // (B, H, K)               i32
  TensorView gates;        // (B, H, blocks)          f32: scratch
  HeadsView q, k;          // (B, positions, H, D)    T
  const int32_t* position;
  HeadRange heads;
  int64_t block = kTile;
};

WEFT_KERNEL(BlockList);
}  // namespace weft
