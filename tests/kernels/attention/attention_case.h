// SPDX-License-Identifier: MIT
// What the attention tests of every backend share: patterns from predicates, in one part and in
// several.
#pragma once

#include "kernels/attention/select.h"
#include "tests/cases/attention_problem.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft::attention_test {
using See = std::function<bool(int head, int64_t i, int64_t j)>;

// A pattern from lambdas; heads h and h + period have equal sets.
struct PredicatePattern : AttentionPattern {
  See see;
  int period = 1;
  std::function<int64_t(int64_t)> query_order = [](int64_t i) { return i; },
                                  key_order = query_order;
  int64_t limit = 0;  // keys are asked for up to here: how many there are in the test

  PredicatePattern(int64_t keys, See f)
      : see(std::move(f)),
        limit(keys) {}

  std::string name() const override { return "predicate"; }

  bool attends(int head, int64_t i, int64_t j) const override { return see(group(head), i, j); }

  void key_runs(int head, int64_t i, std::vector<KeyRun>& runs) const override {
    for (int64_t j = 0; j < limit; ++j)
      if (attends(head, i, j)) runs.push_back({j, j + 1, 1});
  }

  int groups(int heads) const override { return std::min(heads, period); }

  int group(int head) const override { return head % period; }

  int64_t query_slot(int, int64_t i, int64_t) const override { return query_order(i); }

  int64_t key_slot(int, int64_t j, int64_t) const override { return key_order(j); }
};

// The union of patterns that share no pair, each a part with an order of its own. A part may be one
// of the heads h with h % period == of only.
struct PartsPattern : AttentionPattern {
  struct Part {
    std::unique_ptr<AttentionPattern> pattern;
    int of = -1;  // -1: of every head
  };

  std::vector<Part> list;
  int period = 1;

  template <class F>
  void for_each_part(int head, F&& f) const {
    for (const Part& part : list)
      if (part.of < 0 || part.of == group(head)) f(*part.pattern);
  }

  std::string name() const override { return "parts"; }

  bool attends(int head, int64_t i, int64_t j) const override {
    bool any = false;
    for_each_part(head,
                  [&](const AttentionPattern& part) { any = any || part.attends(head, i, j); });
    return any;
  }

  void key_runs(int head, int64_t i, std::vector<KeyRun>& runs) const override {
    for_each_part(head, [&](const AttentionPattern& part) { part.key_runs(head, i, runs); });
  }

  int groups(int heads) const override { return std::min(heads, period); }

  int group(int head) const override { return head % period; }

  void parts(int head, std::vector<PatternPart>& parts) const override {
    for_each_part(head, [&](const AttentionPattern& part) { parts.push_back({&part, head}); });
  }
};

struct NamedPattern {
  std::string name;
  std::unique_ptr<AttentionPattern> pattern;
};

// Sets of all sorts for n.queries and n.keys: dense, banded, with empty rows and unseen keys,
// random, in orders with gaps, different from head to head, in one part and in several.
std::vector<NamedPattern> sample_patterns(Lengths n, int heads);

// For what is decided by sizes and strides alone, no memory behind it: 2 sequences, 3 heads of qk
// and v columns that follow each other, bf16.
AttentionBackward problem_of(int64_t n, int64_t qk, int64_t v);

// The Hopper kernel of a pass of x, an AttentionForward or AttentionBackward.
template <class Parameters>
attention::Kernel hopper_kernel_of(const Parameters& x, const AttentionPass& pass) {
  return attention::hopper_kernel(attention::Problem::of(x), pass);
}

// A first pass over a band.
inline AttentionPass pass_of(const Band& band) {
  AttentionPass pass;
  pass.band = band;
  return pass;
}
}  // namespace weft::attention_test
