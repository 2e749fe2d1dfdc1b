// SPDX-License-Identifier: MIT
// From an AttentionPattern to what kernels read: the tile tables of one head, and AttentionMaps of
// all head groups and parts.
#pragma once

#include "kernels/attention/tile_tables.h"
#include "src/patterns/spec.h"

#include <cstdint>
#include <vector>

namespace weft {
// Tables of one part of a pattern. `edge`: kTile or kSmallTile.
TileTables build_tile_tables(const AttentionPattern& part, int head, Lengths, int edge = kTile);

// The same with the edge that suits.
TileTables build_best_tables(const AttentionPattern& part, int head, Lengths, int64_t head_size);

// Builds all tables on the host; write() copies them to where kernels read them.
class PackedMaps : public PackedTables {
 public:
  // `head_size` is the larger of Dqk and Dv; `edge` that of all tiles, 0: the one that suits each
  // part.
  PackedMaps(const AttentionPattern&, int heads, Lengths, int64_t head_size, int edge = 0);

  // Needed and executed pairs of a head, over all parts.
  const PairCount& pairs(int head) const;

 private:
  std::vector<PairCount> pairs_;  // by group
};
}  // namespace weft
