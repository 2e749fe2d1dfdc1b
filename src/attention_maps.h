// SPDX-License-Identifier: MIT
// PackedMaps in the memory of a device.
#pragma once

#include "src/device.h"
#include "src/patterns/packed_maps.h"
#include "src/patterns/pattern.h"

#include <array>
#include <cstddef>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace weft {
class DeviceMaps {
 public:
  // `edge` as for PackedMaps.
  DeviceMaps(Device& device, const AttentionPattern& pattern, int heads, Lengths n,
             int64_t head_size, int edge = 0) {
    const PackedMaps packed(pattern, heads, n, head_size, edge);
    const auto bytes = static_cast<int64_t>(packed.bytes());
    memory_ = Tensor(*device.pool, Shape{bytes}, DType::u8, "patterns");
    std::vector<char> image(packed.bytes());
    maps_ = packed.write(image.data(), memory_.view().data);
    device.upload(memory_, image.data());
    for (int head = 0; head < heads; ++head) pairs_.push_back(packed.pairs(head));
  }

  const AttentionMaps& maps() const { return maps_; }

  const PairCount& pairs(int head) const { return pairs_.at(static_cast<std::size_t>(head)); }

  std::size_t bytes() const { return static_cast<std::size_t>(memory_.view().bytes()); }

 private:
  AttentionMaps maps_;
  Tensor memory_;
  std::vector<PairCount> pairs_;  // by head
};

// Queries, keys and values of (B, T, H (2 Dqk + Dv)).
inline std::array<HeadsView, 3> packed_heads(const TensorView& packed, int64_t heads,
                                             int64_t qk_size, int64_t v_size) {
  return {heads_of(packed, 0, heads, qk_size), heads_of(packed, heads * qk_size, heads, qk_size),
          heads_of(packed, 2 * heads * qk_size, heads, v_size)};
}

// The backward pass of a forward pass, without scratch.
inline AttentionBackward backward_of(const AttentionForward& f, const HeadsView& dq,
                                     const HeadsView& dk, const HeadsView& dv,
                                     const TensorView& delta, const HeadsView& dy) {
  return {dq, dk, dv, delta, dy, f.y, f.lse, f.q, f.k, f.v, f.maps, f.scale, f.segments, f.form};
}

// AttentionBackward::scratch for `g` on `queue`; empty where it would make nothing faster.
inline Tensor attention_scratch(MemoryPool& pool, const Queue& queue, const AttentionBackward& g) {
  const int64_t elements = std::visit([&](const auto& q) { return backward_scratch(q, g); }, queue);
  return elements ? Tensor(pool, {elements}, DType::f32) : Tensor();
}

// Shares DeviceMaps between the layers of a model: one for each (pattern name, n). `edge` as for
// PackedMaps.
class MapCache {
 public:
  MapCache(Device& device, int heads, int64_t head_size)
      : device_(device),
        heads_(heads),
        head_size_(head_size),
        numbers_(*device.pool, {heads}, DType::i32) {
    std::vector<int32_t> numbers(static_cast<std::size_t>(heads));
    std::iota(numbers.begin(), numbers.end(), 0);
    device.upload(numbers_, numbers.data());
  }

  const DeviceMaps& get(const AttentionPattern& pattern, int64_t n, int edge = 0) {
    return known_
        .try_emplace({pattern.name(), n}, device_, pattern, heads_, Lengths(n), head_size_, edge)
        .first->second;
  }

  // 0, 1 ... of all heads, in the device's memory: each head a group.
  const int32_t* numbers() const { return numbers_.view().as<int32_t>(); }

 private:
  Device& device_;
  int heads_;
  int64_t head_size_;
  Tensor numbers_;
  std::map<std::pair<std::string, int64_t>, DeviceMaps> known_;
};
}  // namespace weft
