// SPDX-License-Identifier: MIT
// all: dense attention, causal S_i = {j : j <= i}, or every key.
// local: a sliding window of l = `stride` keys, the own one included: S_i = {j : i - l < j <= i},
// bidirectional {j : |i - j| < l}. A^(1) of arXiv 1904.10509 section 4.3 has l + 1 keys, i - l too.
#include "src/patterns/pattern.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace weft {
namespace {
class Local : public AttentionPattern {
 public:
  Local(int64_t l, bool causal)
      : l_(l),
        causal_(causal) {}

  std::string name() const override {
    return str("local(stride ", l_, causal_ ? "" : ", bidirectional", ")");
  }

  bool causal() const override { return causal_ || l_ == 1; }

  bool attends(int, int64_t i, int64_t j) const override {
    return i - j < l_ && (causal_ ? j <= i : j - i < l_);
  }

  void key_runs(int, int64_t i, std::vector<KeyRun>& runs) const override {
    runs.push_back({std::max<int64_t>(0, i - l_ + 1), i + (causal_ ? 1 : l_)});
  }

  Band band(int, int64_t n) const override {
    return causal() ? Band{1, static_cast<int32_t>(std::min(l_, n)), 0} : Band{};
  }

 private:
  int64_t l_;
  bool causal_;
};

class All : public AttentionPattern {
 public:
  explicit All(bool causal)
      : causal_(causal) {}

  std::string name() const override { return causal_ ? "all" : "all(bidirectional)"; }

  bool causal() const override { return causal_; }

  bool attends(int, int64_t i, int64_t j) const override { return !causal_ || j <= i; }

  void key_runs(int, int64_t i, std::vector<KeyRun>& runs) const override {
    runs.push_back({0, causal_ ? i + 1 : kMaxPositions});
  }

 private:
  bool causal_;
};
}  // namespace

PatternKind local_pattern() {
  return {"local",
          "the last `stride` positions, the own one included; with causal: false as many later "
          "ones too",
          reads({"stride", "causal"}), [](const PatternSpec& spec, int) {
            check_pattern_field("local", "stride", spec.stride);
            return std::make_unique<Local>(spec.stride, spec.causal);
          }};
}

PatternKind all_pattern() {
  return {"all", "every earlier position and the own one; with causal: false every position",
          reads({"causal"}),
          [](const PatternSpec& spec, int) { return std::make_unique<All>(spec.causal); }};
}
}  // namespace weft
