// SPDX-License-Identifier: MIT
// strided: the column above a position when the sequence is written in rows of l = `stride`:
// S_i = {j : j <= i, (i - j) mod l = 0} (A^(2) of arXiv 1904.10509 section 4.3). Reads `stride`.
// Slots: column after column, without gaps, for queries and keys alike: each column is a short causal
// sequence.
#include <algorithm>

#include "src/pattern.h"

namespace weft {
namespace {

class Strided : public AttentionPattern {
 public:
  explicit Strided(std::int64_t l) : l_(l) {}
  std::string name() const override { return str("strided(stride ", l_, ")"); }
  bool attends(int, std::int64_t i, std::int64_t j) const override { return j <= i && (i - j) % l_ == 0; }
  void key_runs(int, std::int64_t i, std::vector<KeyRun>& runs) const override {
    runs.push_back({i % l_, i + 1, l_});
  }

  // The first n % l columns hold one position more than the others.
  std::int64_t query_slot(int, std::int64_t i, std::int64_t n) const override {
    const std::int64_t column = i % l_;
    return column * (n / l_) + std::min(column, n % l_) + i / l_;
  }
  std::int64_t key_slot(int head, std::int64_t j, std::int64_t n) const override {
    return query_slot(head, j, n);
  }

 private:
  std::int64_t l_;
};

}  // namespace

PatternKind strided_pattern() {
  return {"strided", "every `stride`-th position back, the own one included", reads({"stride"}),
          [](const PatternSpec& spec, int) {
            check_pattern_field("strided", "stride", spec.stride);
            return std::make_unique<Strided>(spec.stride);
          }};
}

}  // namespace weft
