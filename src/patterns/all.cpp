// SPDX-License-Identifier: MIT
// all: dense attention, causal S_i = {j : j <= i}, or every key.
#include "src/patterns/pattern.h"

namespace weft {
namespace {

class All : public AttentionPattern {
 public:
  explicit All(bool causal) : causal_(causal) {}
  std::string name() const override { return causal_ ? "all" : "all(bidirectional)"; }
  bool causal() const override { return causal_; }
  bool attends(int, std::int64_t i, std::int64_t j) const override { return !causal_ || j <= i; }
  void key_runs(int, std::int64_t i, std::vector<KeyRun>& runs) const override {
    runs.push_back({0, causal_ ? i + 1 : kMaxPositions});
  }

 private:
  bool causal_;
};

}  // namespace

PatternKind all_pattern() {
  return {"all", "every earlier position and the own one; with causal: false every position",
          reads({"causal"}), [](const PatternSpec& spec, int) { return std::make_unique<All>(spec.causal); }};
}

}  // namespace weft
