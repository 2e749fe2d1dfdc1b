// SPDX-License-Identifier: MIT
// What sampling keeps on the device: the caches of all layers, and what a position needs to know of each
// pattern, at fixed places, so that one CUDA graph serves every position.
#pragma once

#include <memory>
#include <vector>

#include "models/cache_layout.h"
#include "models/layers.h"
#include "models/model.h"

namespace weft {

class LayerCaches : public DecodeCache {
 public:
  LayerCaches(Device&, const std::vector<std::shared_ptr<const AttentionPattern>>& of_layer,
              const AttentionShape&, DType, std::int64_t batch, std::int64_t length);

  void seek(std::int64_t position) override;
  const std::int32_t* position() const override { return step_.view().as<std::int32_t>(); }
  std::size_t bytes() const override;
  std::vector<CacheUse> use() const override;

  std::int64_t batch() const { return batch_; }
  std::int64_t length() const { return length_; }
  KeyValueCache& layer(std::size_t i) { return layers_[i]; }
  const DecodeKeys& keys(std::size_t layer) const { return keys_[layout_of_layer_[layer]]; }

 private:
  void allocate(const AttentionShape&, DType);

  Device& device_;
  std::int64_t batch_, length_;
  std::vector<KeyValueCache> layers_;
  std::vector<CacheLayout> layouts_;  // one for each distinct pattern
  std::vector<std::size_t> layout_of_layer_;
  std::vector<DecodeKeys> keys_;  // of each layout: where in fixed_ and step_ its words are
  Tensor fixed_;                  // i32: what each layout needs at any position
  Tensor step_;                   // i32: the position at hand, then what each layout needs there
  std::vector<std::int32_t> words_;
};

}  // namespace weft
