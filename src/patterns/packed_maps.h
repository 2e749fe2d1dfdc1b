// SPDX-License-Identifier: MIT
// AttentionMaps of a whole pattern: the tile tables of all its head groups and parts in one piece of memory,
// on the host. DeviceMaps and the C library (src/capi/) both use it.
#pragma once

#include "src/patterns/tile_tables.h"

namespace weft {
// Builds all tables on the host; write() copies them to where kernels read them.
class PackedMaps {
 public:
  // `head_size` is the larger of Dqk and Dv; `edge` that of all tiles, 0: the one that suits each part.
  PackedMaps(const AttentionPattern&, int heads, Lengths, int64_t head_size, int edge = 0);

  std::size_t bytes() const { return bytes_; }
  // Writes bytes() bytes to `image`, with pointers for an image at `base` (16-byte aligned, as memory of
  // operator new is; may be `image`).
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
