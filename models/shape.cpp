// SPDX-License-Identifier: MIT
// Sizes of the model's parts.
#include "models/shape.h"
#include "src/patterns/pattern.h"

#include <cmath>

namespace weft {

AttentionShape attention_shape(const ModelConfig& m) {
  const std::int64_t qk = std::llround(m.qk_ratio * static_cast<double>(m.width));
  WEFT_CHECK(m.heads > 0 && m.width % m.heads == 0 && qk > 0 && qk % m.heads == 0, "model.heads = ", m.heads,
             " must divide model.width = ", m.width, " and qk_ratio * width = ", qk);
  return {m.heads, qk / m.heads, m.width / m.heads};
}

std::int64_t mlp_width(const ModelConfig& m) {
  return std::llround(m.mlp_ratio * static_cast<double>(m.width));
}

std::vector<std::shared_ptr<const AttentionPattern>> layer_patterns(const ModelConfig& m) {
  WEFT_CHECK(!m.attention.empty(), "model.attention must name at least one pattern");
  std::vector<std::shared_ptr<const AttentionPattern>> of_layer;
  for (std::int64_t layer = 0; layer < m.layers; ++layer) {
    const PatternSpec& spec = m.attention[static_cast<std::size_t>(layer) % m.attention.size()];
    std::shared_ptr<const AttentionPattern> pattern = make_pattern(spec, static_cast<int>(m.heads));
    for (const auto& known : of_layer) {
      if (known->name() == pattern->name()) {
        pattern = known;
        break;
      }
    }
    of_layer.push_back(std::move(pattern));
  }
  return of_layer;
}

std::vector<LayerGroup> layer_groups(const std::vector<std::shared_ptr<const AttentionPattern>>& of_layer) {
  std::vector<LayerGroup> groups;
  for (std::size_t layer = 0; layer < of_layer.size(); ++layer) {
    std::size_t g = 0;
    while (g < groups.size() && groups[g].pattern->name() != of_layer[layer]->name()) ++g;
    if (g == groups.size()) groups.push_back({of_layer[layer], {}});
    groups[g].members.push_back(static_cast<std::int64_t>(layer));
  }
  return groups;
}

}  // namespace weft
