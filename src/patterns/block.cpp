// SPDX-License-Identifier: MIT
// block: the own block of l = `stride` positions so far, S_i = {j : j <= i, floor(i / l) = floor(j / l)}: the
// first step of fixed attention (A^(1) of arXiv 1904.10509, section 4.3).
#include "src/patterns/pattern.h"

namespace weft {
namespace {

class Block : public AttentionPattern {
 public:
  explicit Block(std::int64_t l) : l_(l) {}
  std::string name() const override { return str("block(stride ", l_, ")"); }
  bool attends(int, std::int64_t i, std::int64_t j) const override { return j <= i && i / l_ == j / l_; }
  void key_runs(int, std::int64_t i, std::vector<KeyRun>& runs) const override {
    runs.push_back({i / l_ * l_, i + 1});
  }

 private:
  std::int64_t l_;
};

}  // namespace

PatternKind block_pattern() {
  return {"block", "the own block of `stride` positions so far", reads({"stride"}),
          [](const PatternSpec& spec, int) {
            check_pattern_field("block", "stride", spec.stride);
            return std::make_unique<Block>(spec.stride);
          }};
}

}  // namespace weft
