// SPDX-License-Identifier: MIT
// Problems for the rungs of the ladder, and how far their results are from the definition.
#pragma once

#include "kernels/attention/ladder/ladder.h"
#include "src/attention_maps.h"
#include "src/patterns/pattern.h"
#include "tests/cases/attention_on_device.h"

#include <memory>
#include <string>
#include <vector>

namespace weft::ladder {
// The four patterns of the ladder.
inline const std::vector<std::string> kPatterns = {"all", "local", "strided", "fixed"};

// A small one of them. Heads of fixed have tables of their own.
inline std::unique_ptr<AttentionPattern> ladder_test_pattern(const std::string& kind, int heads,
                                                             int64_t stride, int64_t c) {
  PatternSpec spec;
  spec.kind = kind;
  spec.stride = stride;
  spec.c = c;
  if (kind == "fixed") spec.num_verts = 2;
  return make_pattern(spec, heads);
}

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

// A pattern as the rungs of a device take it: its rule, and tables in both orders.
class LadderPattern {
 public:
  LadderPattern(Device&, std::unique_ptr<AttentionPattern>, int heads, Lengths n);

  const AttentionPattern& pattern() const { return *pattern_; }

  const Pattern& of_rungs() const { return of_rungs_; }

  const AttentionMaps& maps(Slots slots) const {
    return slots == Slots::in_order ? in_order_.maps() : of_pattern_.maps();
  }

 private:
  std::unique_ptr<AttentionPattern> pattern_;
  Pattern of_rungs_;
  Tensor bits_;  // of_rungs_ points there
  DeviceMaps in_order_, of_pattern_;
};

// A pass of a rung; of the real kernel, where the rung is about the other pass.
void run_rung(Queue&, const Rung&, const LadderPattern&, const AttentionForward&);
void run_rung(Queue&, const Rung&, const LadderPattern&, const AttentionBackward&);

// Runs both passes of a rung on x, in guarded memory. Error: something is written beside the
// results. T: f32 on the CPU, bf16 on a GPU.
template <class T>
void run_rung(Device&, const Rung&, const LadderPattern&, attention_test::Data<T>& x);

// The largest error of y, lse, dQ, dK and dV against definition.h for random numbers, relative to
// the largest number of each.
double error_of(Device&, const Rung&, const LadderPattern&, const attention_test::Sizes&);
}  // namespace weft::ladder
