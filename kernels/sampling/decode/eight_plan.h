// SPDX-License-Identifier: MIT
// The plan of DecodeBlocks by clusters for up to eight sequences: as cluster_plan.h, with weights
// as fragments of MMAs (m16n8k16) whose eight columns are the sequences.
#pragma once

#include "kernels/sampling/decode/cluster_plan.h"

namespace weft::decode_cluster {
inline constexpr int kTexts = 8, kTextPairs = kTexts / 2;
inline constexpr int kTile = 16;  // rows of a fragment of weights, and its inner elements

// Element e of a lane's fragment: the row of the tile, and the inner element.
constexpr int tile_row(int lane, int e) { return lane / 4 + e / 2 % 2 * 8; }

constexpr int tile_inner(int lane, int e) { return lane % 4 * 2 + e % 2 + e / 4 * 8; }

template <int kWidth>
struct EightPacking : Packing<kWidth> {
  using Base = Packing<kWidth>;
  // Steps of kTile inner elements, of a warp: it has an eighth of the stream.
  static constexpr int kSteps = kWidth / kWarps / kTile;
  static constexpr int kOwnedTiles = Base::kOwned / kTile, kHeadSteps = kHeadSize / kTile,
                       kHiddenTiles = kHidden / kTile;
  static constexpr int kFragment = kTile * kTile;  // elements

  // Columns of q | k | v: a tile of 16 by warp and step, then half a tile.
  static constexpr int kHalfTile = kTile * kWidth;  // where the halves begin

  static constexpr int qkv_column(int i) {
    return i < kHalfTile ? tile_row(i / 8 % 32, i % 8)
                         : kTile + tile_row((i - kHalfTile) / 4 % 32, 0);
  }

  static constexpr int qkv_inner(int i) {
    if (i < kHalfTile) return i / kFragment * kTile + tile_inner(i / 8 % 32, i % 8);
    const int j = i - kHalfTile, e = j % 4;
    return j / (kFragment / 2) * kTile + tile_inner(j / 4 % 32, e / 2 * 4 + e % 2);
  }

  // Columns of `up`, by warp, step and tile.
  static constexpr int up_column(int i) {
    return i / kFragment % kHiddenTiles * kTile + tile_row(i / 8 % 32, i % 8);
  }

  static constexpr int up_inner(int i) {
    return i / (kFragment * kHiddenTiles) * kTile + tile_inner(i / 8 % 32, i % 8);
  }

  // Columns of the projection, by tile and step.
  static constexpr int proj_column(int i) {
    return i / (kFragment * kHeadSteps) * kTile + tile_row(i / 8 % 32, i % 8);
  }

  static constexpr int proj_feature(int i) {
    return i / kFragment % kHeadSteps * kTile + tile_inner(i / 8 % 32, i % 8);
  }

  // Rows of `down`, by rank that owns the columns, tile and step.
  static constexpr int down_column(int i) {
    return i / (kFragment * kHiddenTiles) * kTile + tile_row(i / 8 % 32, i % 8);
  }

  static constexpr int down_unit(int i) {
    return i / kFragment % kHiddenTiles * kTile + tile_inner(i / 8 % 32, i % 8);
  }

  // Each head's partial sums: of a column the sequences in pairs.
  static constexpr int kExchangeWords = Base::kHeads * kWidth * kTextPairs;
};
}  // namespace weft::decode_cluster
