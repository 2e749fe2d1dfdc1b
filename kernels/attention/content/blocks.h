// SPDX-License-Identifier: MIT
// Whole blocks of keys, chosen by content: as MoBA (Lu et al. 2025, arXiv 2502.13189) and NSA (Yuan et al.
// 2025, arXiv 2502.11089), but by the first query of a block of queries, which knows no later token.
#pragma once

#include "kernels/attention/content/range.h"

namespace weft {

// sums_g = sum of k_j over block g, in order, in f32. Query block t chooses the K - 1 blocks g < t of the
// largest q_(t block) . sums_g (ties: the lowest g; NaN last) and itself.
struct BlockChoice {
  static constexpr const char* kName = "content_block_choice";
  TensorView chosen;  // (B, H, blocks, K)       i32: ascending, then -1
  TensorView sums;    // (B, H, D, blocks)       f32
  TensorView gates;   // (B, H, blocks, blocks)  f32: scratch (g, t)
  HeadsView q, k;     // (B, T, H, D)  T
  std::int64_t block = 64;
  std::int64_t count = 0;  // positions that are summed
};
WEFT_KERNEL(BlockChoice);

// Tile maps of each (batch, head): `map` with chosen blocks in place of the K - 1 last ones.
struct BlockMaps {
  static constexpr const char* kName = "content_block_maps";
  TensorView row_tile, col_start, col_tile, col_mask;  // (B H, entries), (B H, tiles + 1), (B H, entries) x 2
  TileMap* made = nullptr;                             // (B H)
  const TileMap* map = nullptr;  // of block_window(block, K), in the queue's memory, like `made`
  TensorView chosen;             // (B H, blocks, K)  i32
  std::int64_t block = 64;       // a multiple of kTile
};
WEFT_KERNEL(BlockMaps);

// Puts the maps of some heads into a pass with a map for each (batch, head); other heads have no part in it.
struct PlaceMaps {
  static constexpr const char* kName = "content_place_maps";
  TileMap* made = nullptr;                // (B, H)  in the queue's memory
  std::int32_t* group_of_head = nullptr;  // (H)     0, 1, ...
  const TileMap* maps =
      nullptr;  // that of sequence b and the i-th of these heads: [b * of_sequence + group[i]]
  const std::int32_t* group = nullptr;  // null: i
  std::int32_t of_sequence = 0;
  HeadRange heads;
  bool accumulate = false;                // the pass goes on from earlier ones
  std::int64_t batch = 0, all_heads = 0;  // B, H
};
WEFT_KERNEL(PlaceMaps);

}  // namespace weft
