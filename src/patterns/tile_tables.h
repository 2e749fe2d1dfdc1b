// SPDX-License-Identifier: MIT
// The attended pairs of one head as tiles of slots, on the host: what a TileMap points to.
#pragma once

#include "kernels/attention/attention.h"
#include "src/patterns/spec.h"

namespace weft {
// Exact number of attended (query, key) pairs of one head, and of pairs in the tiles that are visited.
struct PairCount {
  int64_t needed = 0, executed = 0;
  double waste() const { return needed ? static_cast<double>(executed) / static_cast<double>(needed) : 0; }
  PairCount& operator+=(const PairCount& other) {
    needed += other.needed;
    executed += other.executed;
    return *this;
  }
};

struct TileTables {
  int32_t edge = kTile;
  std::vector<int32_t> query_order, key_order, row_start, row_tile, row_mask, col_start, col_tile, col_mask,
      col_turn, row_schedule, col_schedule;
  std::vector<uint64_t> masks, masks_transposed;
  PairCount pairs;
  int32_t query_tiles() const { return static_cast<int32_t>(query_order.size()) / edge; }
  int32_t key_tiles() const { return static_cast<int32_t>(key_order.size()) / edge; }
};

// Tables of one part of a pattern, in time that grows with its runs and tiles. `edge`: kTile or kSmallTile.
TileTables build_tile_tables(const AttentionPattern& part, int head, Lengths, int edge = kTile);

// The same with the edge that suits: small tiles where large ones would be mostly empty, and for heads of
// more than 128 numbers, whose rows fill the registers by sixteens.
TileTables build_best_tables(const AttentionPattern& part, int head, Lengths, int64_t head_size);
}  // namespace weft
