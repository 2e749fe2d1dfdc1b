// SPDX-License-Identifier: MIT
// AttentionMaps of a whole pattern: the tile tables of all its head groups and parts as one piece of memory,
// on the host or on a device.
#pragma once

#include <map>
#include <tuple>

#include "src/device.h"
#include "src/tile_tables.h"

namespace weft {

// All tables on the host, to be laid down wherever kernels shall read them.
class PackedMaps {
 public:
  // `head_size` is the larger of Dqk and Dv.
  PackedMaps(const AttentionPattern&, int heads, Lengths, std::int64_t head_size);

  std::size_t bytes() const { return bytes_; }
  // Writes bytes() bytes to `image`, with pointers that hold once the image lies at `base` (16-byte aligned;
  // image and base may be the same), and returns what a kernel is given then.
  AttentionMaps write(void* image, void* base) const;

  int passes() const { return static_cast<int>(passes_.size()); }
  int groups() const { return groups_; }
  const std::vector<std::int32_t>& group_of_head() const { return group_of_head_; }
  // Needed and executed pairs of a head, over all parts.
  const PairCount& pairs(int head) const;
  // The tables of a pass and a group; nullptr: the group has no part in it.
  const TileTables* tables(int pass, int group) const;
  int edge(int pass) const { return passes_[static_cast<std::size_t>(pass)].edge; }

 private:
  struct Pass {
    std::int32_t edge = kTile;
    std::vector<int> table_of_group;  // index into tables_, -1: none
    std::vector<bool> accumulate;
  };
  void add(int group, TileTables, bool accumulate);

  int groups_ = 0;
  std::vector<std::int32_t> group_of_head_;
  std::vector<TileTables> tables_;
  std::vector<Pass> passes_;
  std::vector<PairCount> pairs_;  // by group
  std::size_t bytes_ = 0;
};

// PackedMaps in a device's memory, kept as long as this lives.
class DeviceMaps {
 public:
  DeviceMaps(Device&, const AttentionPattern&, int heads, Lengths, std::int64_t head_size);
  const AttentionMaps& maps() const { return maps_; }
  const PairCount& pairs(int head) const;
  std::size_t bytes() const { return static_cast<std::size_t>(memory_.view().bytes()); }

 private:
  AttentionMaps maps_;
  Tensor memory_;
  std::vector<PairCount> pairs_;  // by head
};

// Shares DeviceMaps between the layers of a model: one for each (pattern name, n).
class MapCache {
 public:
  MapCache(Device& device, int heads, std::int64_t head_size)
      : device_(device), heads_(heads), head_size_(head_size) {}
  const DeviceMaps& get(const AttentionPattern&, std::int64_t n);

 private:
  Device& device_;
  int heads_;
  std::int64_t head_size_;
  std::map<std::pair<std::string, std::int64_t>, DeviceMaps> known_;
};

}  // namespace weft
