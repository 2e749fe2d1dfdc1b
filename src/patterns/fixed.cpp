// SPDX-License-Identifier: MIT
// fixed: the own block of l = `stride` positions so far, and c summary positions of every earlier block:
//   S_i = {j : j <= i, floor(i / l) = floor(j / l) or l - (u + 1) c <= j mod l < l - u c}
// with u = head mod num_verts. It is the union of the two steps of arXiv 1904.10509, section 4.3, in one
// head: of `block` and `summary`. Fields: see summary.h. Slots: queries stay in order. Summary keys come
// first, packed: earlier blocks cost no more tiles than their summaries fill. Then come each block's other
// keys: blocks that fit into a tile share one, larger ones start on a tile.

#include "src/patterns/summary.h"

namespace weft {
namespace {

class Fixed : public AttentionPattern {
 public:
  explicit Fixed(const SummaryPositions& summaries) : summaries_(summaries) {}
  std::string name() const override { return "fixed" + summaries_.text(); }
  int groups(int heads) const override { return summaries_.groups(heads); }
  int group(int head) const override { return summaries_.group(head); }

  bool attends(int head, std::int64_t i, std::int64_t j) const override {
    return j <= i && (i / summaries_.l == j / summaries_.l || summaries_.contains(head, j));
  }
  void key_runs(int head, std::int64_t i, std::vector<KeyRun>& runs) const override {
    const std::int64_t block = i / summaries_.l * summaries_.l;
    summaries_.runs(head, block, runs);
    runs.push_back({block, i + 1});
  }

  std::int64_t key_slot(int head, std::int64_t j, std::int64_t n) const override {
    if (summaries_.contains(head, j)) return summaries_.rank(head, j);
    const std::int64_t block = j / summaries_.l, offset = j % summaries_.l;
    const std::int64_t others = summaries_.l - summaries_.c;  // in a block, in order
    const std::int64_t rank = offset < summaries_.first(head) ? offset : offset - summaries_.c;
    const std::int64_t blocks_a_tile = kTile / others;
    const std::int64_t start = blocks_a_tile > 0
                                   ? block / blocks_a_tile * kTile + block % blocks_a_tile * others
                                   : block * tile_ceil(others);
    return tile_ceil(summaries_.count(head, n)) + start + rank;
  }

 private:
  SummaryPositions summaries_;
};

}  // namespace

PatternKind fixed_pattern() {
  return {"fixed",
          "the own block of `stride` positions so far, and `c` summary positions of every earlier block",
          SummaryPositions::fields, [](const PatternSpec& spec, int heads) {
            return std::make_unique<Fixed>(SummaryPositions::of("fixed", spec, heads));
          }};
}

}  // namespace weft
