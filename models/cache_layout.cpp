// SPDX-License-Identifier: MIT
// Rows are packed: a head takes as many as its group needs, and no more.
#include "models/cache_layout.h"
#include "src/patterns/pattern.h"

#include <algorithm>

namespace weft {
namespace {

// Of a causal pattern, whose runs end at the query.
std::int64_t longest_list(const AttentionPattern& pattern, int head, std::int64_t length) {
  std::int64_t longest = 0;
  std::vector<KeyRun> runs;
  for (std::int64_t i = 0; i < length; ++i) {
    runs.clear();
    pattern.key_runs(head, i, runs);
    std::int64_t keys = 0;
    for (const KeyRun& run : runs) keys += run.size();
    longest = std::max(longest, keys);
  }
  return longest;
}

}  // namespace

CacheLayout::CacheLayout(std::shared_ptr<const AttentionPattern> pattern, int heads, std::int64_t length)
    : pattern_(std::move(pattern)) {
  for (int head = 0; head < heads; ++head) group_of_head_.push_back(pattern_->group(head));
  head_of_group_.assign(pattern_->groups(heads), -1);
  for (int head = heads - 1; head >= 0; --head) head_of_group_.at(group_of(head)) = head;
  for (const int head : head_of_group_) {
    WEFT_CHECK(head >= 0, pattern_->name(), ": a group of heads has no head");
    of_group_.push_back(cache_rows(*pattern_, head, length));
    longest_ = std::max(longest_, longest_list(*pattern_, head, length));
  }
  for (int head = 0; head < heads; ++head) {
    first_row_.push_back(static_cast<std::int32_t>(rows_));
    rows_ += rows(head);
    WEFT_CHECK(rows_ <= kMaxPositions, pattern_->name(), ": a cache of ", length, " positions and ", heads,
               " heads has more than ", kMaxPositions, " rows; sample shorter texts");
  }
}

void CacheLayout::append_fixed(std::vector<std::int32_t>& words) const {
  words.insert(words.end(), group_of_head_.begin(), group_of_head_.end());
  words.insert(words.end(), first_row_.begin(), first_row_.end());
}

std::int64_t CacheLayout::step_words() const { return groups() + 1 + heads() + groups() * longest_; }

void CacheLayout::append_step(std::int64_t position, std::vector<std::int32_t>& words) const {
  const auto row_in = [](const CacheRows& rows, std::int64_t t) { return rows.row_of[t]; };
  std::vector<std::int32_t> keys;
  words.push_back(0);
  for (std::size_t g = 0; g < of_group_.size(); ++g) {
    const std::size_t start = keys.size();
    pattern_->keys_of(head_of_group_[g], position, position + 1, keys);
    for (std::size_t k = start; k < keys.size(); ++k) keys[k] = row_in(of_group_[g], keys[k]);
    words.push_back(static_cast<std::int32_t>(keys.size()));
  }
  for (std::size_t h = 0; h < first_row_.size(); ++h) {
    const std::int32_t row = row_in(of_group_[group_of(static_cast<int>(h))], position);
    words.push_back(row < 0 ? -1 : first_row_[h] + row);
  }
  words.insert(words.end(), keys.begin(), keys.end());
}

}  // namespace weft
