// SPDX-License-Identifier: MIT
// Problems for the rungs of the ladder, and how far their results are from the definition.
#pragma once

#include "kernels/attention/ladder/ladder.h"
#include "src/patterns/pattern.h"
#include "tests/cases/attention_problem.h"

#include <memory>
#include <string>
#include <vector>

namespace weft::ladder {
// The four patterns of the ladder.
inline const std::vector<std::string> kPatterns = {"all", "local", "strided", "fixed"};

// The same pairs, with positions in order.
class InOrder : public AttentionPattern {
 public:
  explicit InOrder(const AttentionPattern& pattern)
      : pattern_(pattern) {}

  std::string name() const override { return pattern_.name() + " in order"; }

  bool attends(int head, int64_t i, int64_t j) const override {
    return pattern_.attends(head, i, j);
  }

  void key_runs(int head, int64_t i, std::vector<KeyRun>& runs) const override {
    pattern_.key_runs(head, i, runs);
  }

  int groups(int heads) const override { return pattern_.groups(heads); }

  int group(int head) const override { return pattern_.group(head); }

 private:
  const AttentionPattern& pattern_;
};

// A pattern as the rungs take it: its predicate, and tables in both orders.
class LadderPattern {
 public:
  LadderPattern(std::unique_ptr<AttentionPattern> pattern, int heads, Lengths n);

  const AttentionPattern& pattern() const { return *pattern_; }

  const Attends& attends() const { return attends_; }

  const AttentionMaps& maps(Slots slots) const {
    return slots == Slots::in_order ? in_order_.maps : of_pattern_.maps;
  }

 private:
  std::unique_ptr<AttentionPattern> pattern_;
  Attends attends_;
  attention_test::HostMaps in_order_, of_pattern_;
};

// Runs both passes of a rung on x.
void run_rung(const Rung&, const LadderPattern&, attention_test::Data<float>& x);

// The largest error of y, lse, dQ, dK and dV against definition.h for random numbers, relative to
// the largest number of each.
double error_of(const Rung&, const LadderPattern&, const attention_test::Sizes&);
}  // namespace weft::ladder
