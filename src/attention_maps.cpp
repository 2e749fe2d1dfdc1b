// SPDX-License-Identifier: MIT
#include "src/attention_maps.h"

#include "src/patterns/pattern.h"

namespace weft {

DeviceMaps::DeviceMaps(Device& device, const AttentionPattern& pattern, int heads, Lengths n,
                       std::int64_t head_size) {
  const PackedMaps packed(pattern, heads, n, head_size);
  const auto bytes = static_cast<std::int64_t>(packed.bytes());
  memory_ = Tensor(*device.pool, Shape{bytes}, DType::u8, "patterns");
  std::vector<char> image(packed.bytes());
  maps_ = packed.write(image.data(), memory_.view().data);
  device.upload(memory_, image.data());
  for (int head = 0; head < heads; ++head) pairs_.push_back(packed.pairs(head));
}

Tensor attention_scratch(MemoryPool& pool, const Queue& queue, const AttentionBackward& g) {
  const std::int64_t elements = std::visit([&](const auto& q) { return backward_scratch(q, g); }, queue);
  return elements ? Tensor(pool, {elements}, DType::f32) : Tensor();
}

const DeviceMaps& MapCache::get(const AttentionPattern& pattern, std::int64_t n) {
  return known_.try_emplace({pattern.name(), n}, device_, pattern, heads_, Lengths(n), head_size_)
      .first->second;
}

}  // namespace weft
