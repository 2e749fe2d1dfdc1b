// SPDX-License-Identifier: MIT
// What sampling keeps on the device: the caches of all layers, and the rows that a position reads
// and writes, at fixed places, so that one CUDA graph serves every position.
#pragma once

#include "models/layers.h"
#include "models/model.h"
#include "src/patterns/cache_rows.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace weft {
// The cache of the layers with one pattern: the rows of each head, and which a position writes and
// reads.
class CacheLayout {
 public:
  // For texts of `length` positions. Throws Error unless the pattern is causal.
  // `positions`: a step lists the positions of its keys, too.
  CacheLayout(std::shared_ptr<const AttentionPattern>, int heads, int64_t length, bool positions);

  const std::shared_ptr<const AttentionPattern>& pattern() const { return pattern_; }

  int64_t rows() const { return rows_; }  // of all heads

  int64_t rows(int head) const { return of_group_[group_of(head)].rows; }

  // What does not change from position to position: group_of_head (H), first_row (H).
  int64_t fixed_words() const { return 2 * heads(); }

  void append_fixed(std::vector<int32_t>& words) const;

  // What does: key_start (groups + 1), row (H), the listed rows, at most listed_words(); as many
  // positions.
  int64_t step_words() const {
    return groups() + 1 + heads() + listed_words() * (positions_ ? 2 : 1);
  }

  int64_t listed_words() const { return groups() * longest_; }

  void append_step(int64_t position, std::vector<int32_t>& words) const;
  // After `count` positions: whose key is in each row, position * heads + head; -1: nobody's.
  void append_sources(int64_t count, std::vector<int32_t>& words) const;

  int64_t longest() const { return longest_; }  // keys that a head reads at a position, at most

  int64_t groups() const { return static_cast<int64_t>(of_group_.size()); }

  int64_t heads() const { return static_cast<int64_t>(group_of_head_.size()); }

 private:
  std::size_t group_of(int head) const { return static_cast<std::size_t>(group_of_head_.at(head)); }

  std::shared_ptr<const AttentionPattern> pattern_;
  std::vector<int> head_of_group_;  // one that stands for the others
  std::vector<CacheRows> of_group_;
  std::vector<int32_t> group_of_head_, first_row_;  // a head has rows first_row, first_row + 1 ...
  int64_t rows_ = 0, longest_ = 0;
  bool positions_;
};

class LayerCaches : public DecodeCache {
 public:
  // blocks: their dynamic heads have caches of their own.
  LayerCaches(Device&, const std::vector<std::shared_ptr<const AttentionPattern>>& of_layer,
              const AttentionShape&, const std::vector<ResidualBlock>& blocks, DType, int64_t batch,
              int64_t length, bool positions);

  void seek(int64_t position) override;

  const int32_t* position() const override { return step_.view().as<int32_t>(); }

  std::size_t bytes() const override;
  std::vector<CacheUse> use() const override;

  int64_t batch() const { return batch_; }

  int64_t length() const { return length_; }

  KeyValueCache& layer(std::size_t i) { return layers_[i]; }

  // Of the dynamic heads; null: there are none.
  const DynamicCache* dynamic(std::size_t layer) const { return dynamic_[layer].get(); }

  const DecodeKeys& keys(std::size_t layer) const { return keys_[layout_of_layer_[layer]]; }

  // What fill() needs of the first `count` positions, on the device: append_sources() of each
  // layout.
  Tensor sources(int64_t count) const;
  // Keys and values of a text, in `packed` (1, T, q | k | v), go to the sequences first .. first +
  // texts - 1.
  void fill(Ctx&, std::size_t layer, const Tensor& packed, const Tensor& sources, int64_t first,
            int64_t texts);

 private:
  void allocate(const AttentionShape&, DType, bool positions);

  Device& device_;
  int64_t batch_, length_;
  std::vector<KeyValueCache> layers_;
  std::vector<std::unique_ptr<DynamicCache>> dynamic_;
  std::vector<CacheLayout> layouts_;  // one for each distinct pattern
  std::vector<std::size_t> layout_of_layer_;
  std::vector<DecodeKeys> keys_;  // of each layout: where in fixed_ and step_ its words are
  Tensor fixed_;                  // i32: what each layout needs at any position
  Tensor step_;                   // i32: the position at hand, then what each layout needs there
  std::vector<int32_t> words_;
};
}  // namespace weft
