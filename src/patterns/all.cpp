// SPDX-License-Identifier: MIT
// all: dense causal attention, S_i = {j : j <= i}. Reads no field of the spec.
#include "src/pattern.h"

namespace weft {
namespace {

class All : public AttentionPattern {
 public:
  std::string name() const override { return "all"; }
  bool attends(int, std::int64_t i, std::int64_t j) const override { return j <= i; }
  void key_runs(int, std::int64_t i, std::vector<KeyRun>& runs) const override { runs.push_back({0, i + 1}); }
};

}  // namespace

PatternKind all_pattern() {
  return {"all", "every earlier position and the own one",
          [](const PatternSpec&, int) { return std::make_unique<All>(); }};
}

}  // namespace weft
