// SPDX-License-Identifier: MIT
// The memory of sampling on the device: keys and values of all layers, and lists of the rows that a
// position reads and writes. Addresses are fixed, so one CUDA graph serves every position.
#pragma once

#include "models/layers.h"
#include "models/model.h"
#include "src/patterns/cache_rows.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace weft {
// Cache rows of the layers with one pattern: how many each head has, and which of them a position
// writes and reads.
class CacheLayout {
 public:
  // For texts of `length` positions. Throws Error unless the pattern is causal.
  // `positions`: a step lists the positions of its keys, too.
  CacheLayout(std::shared_ptr<const AttentionPattern>, int heads, int64_t length, bool positions);

  const std::shared_ptr<const AttentionPattern>& pattern() const { return pattern_; }

  int64_t rows() const { return rows_; }  // of all heads

  int64_t rows(int head) const { return of_group_[group_of(head)].rows; }

  // The words that are equal for all positions: group_of_head (H), first_row (H).
  int64_t fixed_words() const { return 2 * heads(); }

  void append_fixed(std::vector<int32_t>& words) const;

  // The words of one position: key_start (groups + 1), row (H), the listed rows, at most
  // listed_words(), and with `positions` the position of each.
  int64_t step_words() const {
    return groups() + 1 + heads() + listed_words() * (positions_ ? 2 : 1);
  }

  int64_t listed_words() const { return groups() * longest_; }

  void append_step(int64_t position, std::vector<int32_t>& words) const;
  // For each row after `count` positions: position * heads + head of the key in it; -1: it is
  // empty.
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

  std::size_t prepared_bytes() const override {
    return prepared ? static_cast<std::size_t>(prepared.view().bytes()) : 0;
  }

  int64_t batch() const { return batch_; }

  int64_t length() const { return length_; }

  KeyValueCache& layer(std::size_t i) { return layers_[i]; }

  // Of the dynamic heads; null: there are none.
  const DynamicCache* dynamic(std::size_t layer) const { return dynamic_[layer].get(); }

  const DecodeKeys& keys(std::size_t layer) const { return keys_[layout_of_layer_[layer]]; }

  Tensor prepared;  // DecodeBlocks::prepared, or null

  // append_sources() of each layout on the device, which fill() needs.
  Tensor sources(int64_t count) const;
  // Copies keys and values of a text, `packed` (1, T, q | k | v), to the caches of the sequences
  // first .. first + texts - 1.
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
