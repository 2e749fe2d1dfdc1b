// SPDX-License-Identifier: MIT
// Sizes that follow from a ModelConfig: the model, the count of operations and the memory plan share them.
#pragma once

#include <memory>
#include <vector>

#include "src/config/config.h"
#include "src/ops.h"
#include "src/patterns/spec.h"

namespace weft {

AttentionShape attention_shape(const ModelConfig&);  // Dqk = qk_ratio * width / heads, Dv = width / heads
std::int64_t mlp_width(const ModelConfig&);          // mlp_ratio * width
// The pattern of each layer: the configured ones, cycled. Layers with equal specs share one object.
std::vector<std::shared_ptr<const AttentionPattern>> layer_patterns(const ModelConfig&);

// Layers with one pattern.
struct LayerGroup {
  std::shared_ptr<const AttentionPattern> pattern;
  std::vector<std::int64_t> members;
};
// In the order of their first layers; equal names are one pattern.
std::vector<LayerGroup> layer_groups(const std::vector<std::shared_ptr<const AttentionPattern>>& of_layer);

}  // namespace weft
