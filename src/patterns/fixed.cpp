// SPDX-License-Identifier: MIT
// fixed: the own block of l = `stride` positions so far, and c summary positions of every earlier block:
// S_i = {j : j <= i, floor(i / l) = floor(j / l) or l - (u + 1) c <= j mod l < l - u c},  u = head mod
// num_verts (both steps of arXiv 1904.10509 section 4.3 merged; u gives heads distinct sub-blocks). Reads
// `stride`, `num_verts`, and `c` or, in blocks as OpenAI's code has it, `block` and `vertsize`: c = vertsize
// * block. Slots: queries stay in order. Summary keys come first, packed; then each block's other keys:
// blocks that fit into a tile share one, larger ones start on a tile. Earlier blocks then cost no more tiles
// than their summaries fill.
#include <algorithm>

#include "src/patterns/summary.h"

namespace weft {
namespace {

class Fixed : public AttentionPattern {
 public:
  explicit Fixed(const SummaryColumns& columns) : columns_(columns) {}
  std::string name() const override { return "fixed" + columns_.text(); }
  int groups(int heads) const override { return columns_.groups(heads); }
  int group(int head) const override { return columns_.group(head); }

  bool attends(int head, std::int64_t i, std::int64_t j) const override {
    return j <= i && (i / columns_.l == j / columns_.l || columns_.contains(head, j));
  }
  void key_runs(int head, std::int64_t i, std::vector<KeyRun>& runs) const override {
    const std::int64_t block = i / columns_.l * columns_.l;
    columns_.runs(head, block, runs);
    runs.push_back({block, i + 1});
  }

  std::int64_t key_slot(int head, std::int64_t j, std::int64_t n) const override {
    if (columns_.contains(head, j)) return columns_.rank(head, j);
    const std::int64_t block = j / columns_.l, offset = j % columns_.l;
    const std::int64_t others = columns_.l - columns_.c;  // in a block, in order
    const std::int64_t rank = offset < columns_.first(head) ? offset : offset - columns_.c;
    const std::int64_t blocks_a_tile = kTile / others;
    const std::int64_t start = blocks_a_tile > 0
                                   ? block / blocks_a_tile * kTile + block % blocks_a_tile * others
                                   : block * tile_ceil(others);
    return tile_ceil(columns_.count(head, n)) + start + rank;
  }

 private:
  SummaryColumns columns_;
};

}  // namespace

PatternKind fixed_pattern() {
  return {"fixed",
          "the own block of `stride` positions so far, and `c` summary positions of every earlier block",
          SummaryColumns::fields, [](const PatternSpec& spec, int heads) {
            return std::make_unique<Fixed>(SummaryColumns::of("fixed", spec, heads));
          }};
}

}  // namespace weft
