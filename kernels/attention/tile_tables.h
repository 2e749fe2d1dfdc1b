// SPDX-License-Identifier: MIT
// What a TileMap points to, built on the host from the definition of a pattern: which keys each
// query sees, and the slot of each position. The names of patterns are unknown here.
#pragma once

#include "kernels/attention/attention.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace weft {
// Positions begin, begin + step, ... below end.
struct KeyRun {
  int64_t begin = 0, end = 0, step = 1;

  int64_t size() const {
    if (begin >= end) return 0;
    return step == 1 ? end - begin : (end - begin + step - 1) / step;
  }

  friend bool operator==(const KeyRun&, const KeyRun&) = default;
};

// The pairs that one head attends, and the order in which tiles take queries and keys. A wrong
// order costs time, a wrong run gives wrong results.
struct AttendedPairs {
  std::string name;  // for errors: "fixed(stride 128, c 32)"
  int64_t queries = 0, keys = 0;
  // Appends the keys of query i as runs, each key once. Keys from `keys` on are left out.
  std::function<void(int64_t i, std::vector<KeyRun>& runs)> key_runs;
  // Position -> slot: tile t holds the `edge` slots from t * edge on. Each position has a slot of
  // its own; gaps let blocks start on a tile. None: positions in order.
  std::function<int64_t(int64_t i)> query_slot = {}, key_slot = {};
};

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

// The arrays of a TileMap.
struct TileTables {
  int32_t edge = kTile;
  std::vector<int32_t> query_order, key_order, row_start, row_tile, row_mask, col_start, col_tile,
      col_mask, col_turn, row_schedule, col_schedule;
  std::vector<uint64_t> masks, masks_transposed;
  PairCount pairs;

  int32_t query_tiles() const { return static_cast<int32_t>(query_order.size()) / edge; }

  int32_t key_tiles() const { return static_cast<int32_t>(key_order.size()) / edge; }
};

// In time that grows with runs and tiles. `edge`: kTile or kSmallTile.
TileTables build_tile_tables(const AttendedPairs&, int edge = kTile);

// The same with the edge that suits. Where there are kernels for small tiles (select.h): small ones
// if large ones would be mostly empty, and for heads of more than 128 numbers, whose rows fill the
// registers by sixteens.
TileTables build_best_tables(const AttendedPairs&, int64_t head_size);

// Tables of all groups of heads in one piece of memory, as AttentionMaps.
class PackedTables {
 public:
  PackedTables(int64_t queries, int64_t keys, std::vector<int32_t> group_of_head, int groups);

  // The next part of a group. `band`: the same pairs as a band, if they are one. `accumulate`: not
  // the first part.
  void add(int group, TileTables, const Band&, bool accumulate);

  std::size_t bytes() const;

  // Writes bytes() bytes to `image`, with pointers for an image at `base` (16-byte aligned; may be
  // `image`).
  AttentionMaps write(void* image, void* base) const;

  int passes() const { return static_cast<int>(passes_.size()); }

  int groups() const { return groups_; }

  const std::vector<int32_t>& group_of_head() const { return group_of_head_; }

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

  Band band_of(const Pass&) const;

  int64_t queries_, keys_;
  int groups_;
  std::vector<int32_t> group_of_head_;
  std::vector<TileTables> tables_;
  std::vector<Band> bands_;  // of each table
  std::vector<Pass> passes_;
};
}  // namespace weft
