// SPDX-License-Identifier: MIT
// The tile tables of one head, as kernels get them (kernels/attention/tile_tables.h), and what they
// say of each tile.
#pragma once

#include "src/patterns/packed_maps.h"
#include "train/inspect/pattern_view.h"

#include <cstdint>
#include <string>
#include <vector>

namespace weft {
// A part of a head's pairs, in an order of slots of its own.
struct TilePass {
  std::string name;  // of the pattern of these pairs
  const TileTables* tables = nullptr;
  Band band{};     // the same pairs as a band, where they are one
  int number = 0;  // of the pass among those of all heads
};

class HeadTiles {
 public:
  // `head_size` and `edge` as for PackedMaps. Throws Error for a head that chooses keys by content.
  HeadTiles(const PatternView&, int64_t head_size, int edge = 0);
  HeadTiles(const HeadTiles&) = delete;
  HeadTiles& operator=(const HeadTiles&) = delete;

  const std::vector<TilePass>& passes() const { return passes_; }

  const PairCount& pairs() const { return maps_.pairs(head_); }  // over all passes

  const PackedMaps& maps() const { return maps_; }  // of all heads

 private:
  int head_;
  PackedMaps maps_;
  std::vector<TilePass> passes_;
};

// Kinds of tiles. A kernel computes all pairs of an executed tile; in a masked one it drops those
// that the pattern does not have.
struct TileCounts {
  int64_t tiles = 0;  // there are
  int64_t full = 0;   // every pair is needed: no mask
  int64_t masked = 0;

  int64_t executed() const { return full + masked; }

  int64_t skipped() const { return tiles - executed(); }
};

TileCounts count_tiles(const TileTables&);

// The matrix of tiles, queries x keys, in at most max_cells cells a side. A cell counts
// tiles_a_side x tiles_a_side tiles, fewer at the right and the bottom.
struct TileCells {
  int64_t tiles_a_side = 1, rows = 0, columns = 0;
  std::vector<TileCounts> cells{};  // (rows, columns)
};

TileCells tile_cells(const TileTables&, int64_t max_cells);

// The word of a query slot in entry `entry` of the row tables: bit k says whether the pair with
// key slot k of the tile is needed.
uint64_t row_word(const TileTables&, int64_t entry, int row);
// The entry of a pair of tiles in the row tables; -1: it is skipped.
int64_t entry_of(const TileTables&, int32_t query_tile, int32_t key_tile);
}  // namespace weft
