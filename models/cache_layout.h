// SPDX-License-Identifier: MIT
// The cache of the layers with one pattern: which of its rows belong to which head, and which rows a position
// is written to and reads.
#pragma once

#include <memory>
#include <vector>

#include "src/patterns/cache_rows.h"

namespace weft {

class CacheLayout {
 public:
  // For texts of `length` positions. Throws Error unless the pattern is causal.
  CacheLayout(std::shared_ptr<const AttentionPattern>, int heads, std::int64_t length);

  const std::shared_ptr<const AttentionPattern>& pattern() const { return pattern_; }
  std::int64_t rows() const { return rows_; }  // of all heads
  std::int64_t rows(int head) const { return of_group_[group_of(head)].rows; }

  // What does not change from position to position: group_of_head (H), first_row (H).
  std::int64_t fixed_words() const { return 2 * heads(); }
  void append_fixed(std::vector<std::int32_t>& words) const;
  // What does: key_start (groups + 1), row (H), and the listed rows, at most step_words() in all.
  std::int64_t step_words() const;
  void append_step(std::int64_t position, std::vector<std::int32_t>& words) const;
  std::int64_t longest() const { return longest_; }  // keys that a head reads at a position, at most
  std::int64_t groups() const { return static_cast<std::int64_t>(of_group_.size()); }
  std::int64_t heads() const { return static_cast<std::int64_t>(group_of_head_.size()); }

 private:
  std::size_t group_of(int head) const {
    return static_cast<std::size_t>(group_of_head_.at(static_cast<std::size_t>(head)));
  }

  std::shared_ptr<const AttentionPattern> pattern_;
  std::vector<int> head_of_group_;  // one that stands for the others
  std::vector<CacheRows> of_group_;
  std::vector<std::int32_t> group_of_head_,
      first_row_;  // the rows of a head are first_row, first_row + 1 ...
  std::int64_t rows_ = 0, longest_ = 0;
};

}  // namespace weft
