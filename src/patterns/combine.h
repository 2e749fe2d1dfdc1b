// SPDX-License-Identifier: MIT
// Arithmetic on runs of keys; and what patterns made of patterns share.
#pragma once

#include "src/patterns/pattern.h"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {
// The keys of `run` that are not below `low` and below `high`; empty runs are not appended.
void clip_run(const KeyRun& run, int64_t low, int64_t high, std::vector<KeyRun>& out);

// Appends keys begin .. end - 1: to the last of runs[first ..] where they touch it.
void append_run(int64_t begin, int64_t end, std::size_t first, std::vector<KeyRun>& runs);

// Removes the keys of `taken` from runs[first ..]. Unequal steps cost time for each key taken
// within a run.
void subtract_runs(const std::vector<KeyRun>& taken, std::size_t first, std::vector<KeyRun>& runs);

// outer.of[index]; errors tell where they come from.
std::unique_ptr<AttentionPattern> make_inner(const PatternSpec& outer, std::size_t index,
                                             int heads);
// Throws Error unless low <= outer.of.size() <= high.
void check_number_of_patterns(const PatternSpec& outer, std::size_t low, std::size_t high);

// A pattern made of other patterns.
class Composite : public AttentionPattern {
 public:
  std::string name() const override;
  bool causal() const override;
  Lengths lengths() const override;  // that all of them allow

  int groups(int) const override { return groups_; }

  int group(int head) const override { return group_.at(head); }

 protected:
  using Patterns = std::vector<std::unique_ptr<AttentionPattern>>;

  Composite(const char* kind, Patterns of)
      : of_(std::move(of)),
        kind_(kind) {}

  // Numbers describe what each head sees: equal ones get equal groups, in the order of the heads.
  void group_heads(const std::vector<std::vector<int>>& seen);

  Patterns of_;

 private:
  const char* kind_;
  std::vector<int> group_;  // by head
  int groups_ = 0;
};
}  // namespace weft
