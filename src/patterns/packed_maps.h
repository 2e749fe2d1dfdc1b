// SPDX-License-Identifier: MIT
// The attended pairs of a head as tiles of slots, on the host: what a TileMap points to.
// AttentionMaps of a whole pattern: the tables of all its head groups and parts in one piece of
// memory.
#pragma once

#include "kernels/attention/attention.h"
#include "src/patterns/spec.h"

#include <cstddef>
#include <vector>

namespace weft {
// Exact number of attended (query, key) pairs of one head, and of pairs in the tiles that are
// visited.
struct PairCount {
  int64_t needed = 0, executed = 0;

  double waste() const {
    return needed ? static_cast<double>(executed) / static_cast<double>(needed) : 0;
  }

  PairCount& operator+=(const PairCount& other) {
    needed += other.needed;
    executed += other.executed;
    return *this;
  }
};

struct TileTables {
  int32_t edge = kTile;
  std::vector<int32_t> query_order, key_order, row_start, row_tile, row_mask, col_start, col_tile,
      col_mask, col_turn, row_schedule, col_schedule;
  std::vector<uint64_t> masks, masks_transposed;
  PairCount pairs;

  int32_t query_tiles() const { return static_cast<int32_t>(query_order.size()) / edge; }

  int32_t key_tiles() const { return static_cast<int32_t>(key_order.size()) / edge; }
};

// Tables of one part of a pattern, in time that grows with its runs and tiles. `edge`: kTile or
// kSmallTile.
TileTables build_tile_tables(const AttentionPattern& part, int head, Lengths, int edge = kTile);

// The same with the edge that suits: small tiles where large ones would be mostly empty, and for
// heads of more than 128 numbers, whose rows fill the registers by sixteens.
TileTables build_best_tables(const AttentionPattern& part, int head, Lengths, int64_t head_size);

// Builds all tables on the host; write() copies them to where kernels read them.
class PackedMaps {
 public:
  // `head_size` is the larger of Dqk and Dv; `edge` that of all tiles, 0: the one that suits each
  // part.
  PackedMaps(const AttentionPattern&, int heads, Lengths, int64_t head_size, int edge = 0);

  std::size_t bytes() const { return bytes_; }

  // Writes bytes() bytes to `image`, with pointers for an image at `base` (16-byte aligned; may be
  // `image`).
  AttentionMaps write(void* image, void* base) const;

  int passes() const { return static_cast<int>(passes_.size()); }

  int groups() const { return groups_; }

  const std::vector<int32_t>& group_of_head() const { return group_of_head_; }

  // Needed and executed pairs of a head, over all parts.
  const PairCount& pairs(int head) const;
  // The tables of a pass and a group; nullptr: the group has no part in it.
  const TileTables* tables(int pass, int group) const;

  // What all groups have in a pass, if it is one band.
  Band band(int pass) const { return band_of(passes_[pass]); }

 private:
  struct Pass {
    int32_t edge = kTile;
    std::vector<int> table_of_group;  // index into tables_, -1: none
    std::vector<bool> accumulate;
  };

  void add(int group, TileTables, const Band&, bool accumulate);
  Band band_of(const Pass&) const;

  Lengths n_;
  int groups_ = 0;
  std::vector<int32_t> group_of_head_;
  std::vector<TileTables> tables_;
  std::vector<Band> bands_;  // of each table
  std::vector<Pass> passes_;
  std::vector<PairCount> pairs_;  // by group
  std::size_t bytes_ = 0;
};
}  // namespace weft
