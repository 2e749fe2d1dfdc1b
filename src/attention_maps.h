// SPDX-License-Identifier: MIT
// PackedMaps in the memory of a device.
#pragma once

#include <map>

#include "src/device.h"
#include "src/patterns/packed_maps.h"

namespace weft {

class DeviceMaps {
 public:
  DeviceMaps(Device&, const AttentionPattern&, int heads, Lengths, std::int64_t head_size);
  const AttentionMaps& maps() const { return maps_; }
  const PairCount& pairs(int head) const { return pairs_.at(static_cast<std::size_t>(head)); }
  std::size_t bytes() const { return static_cast<std::size_t>(memory_.view().bytes()); }

 private:
  AttentionMaps maps_;
  Tensor memory_;
  std::vector<PairCount> pairs_;  // by head
};

// AttentionBackward::scratch for `g` on `queue`; empty where it would make nothing faster.
Tensor attention_scratch(MemoryPool&, const Queue& queue, const AttentionBackward& g);

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
