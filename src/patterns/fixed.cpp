// SPDX-License-Identifier: MIT
// fixed: the own block of l = `stride` positions so far, and c summary positions of every earlier block:
// S_i = {j : j <= i, floor(i / l) = floor(j / l) or l - (u + 1) c <= j mod l < l - u c},  u = head mod
// num_verts (both steps of arXiv 1904.10509 section 4.3 merged; u gives heads distinct sub-blocks). Reads
// `stride`, `num_verts`, and `c` or, in blocks as OpenAI's code has it, `block` and `vertsize`: c = vertsize
// * block. Slots: queries stay in order. Summary keys come first, packed; then each block's other keys:
// blocks that fit into a tile share one, larger ones start on a tile. Earlier blocks then cost no more tiles
// than their summaries fill.
#include <algorithm>

#include "src/pattern.h"

namespace weft {
namespace {

class Fixed : public AttentionPattern {
 public:
  Fixed(std::int64_t l, std::int64_t c, std::int64_t num_verts) : l_(l), c_(c), num_verts_(num_verts) {}
  std::string name() const override {
    return str("fixed(stride ", l_, ", c ", c_, ", num_verts ", num_verts_, ")");
  }
  int groups(int heads) const override { return static_cast<int>(std::min<std::int64_t>(heads, num_verts_)); }
  int group(int head) const override { return static_cast<int>(head % num_verts_); }

  bool attends(int head, std::int64_t i, std::int64_t j) const override {
    return j <= i && (i / l_ == j / l_ || is_summary(head, j));
  }
  void key_runs(int head, std::int64_t i, std::vector<KeyRun>& runs) const override {
    const std::int64_t block = i / l_ * l_, first = first_summary(head);
    for (std::int64_t earlier = 0; earlier < block; earlier += l_)
      runs.push_back({earlier + first, earlier + first + c_});
    runs.push_back({block, i + 1});
  }

  std::int64_t key_slot(int head, std::int64_t j, std::int64_t n) const override {
    const std::int64_t block = j / l_, offset = j % l_, first = first_summary(head);
    if (is_summary(head, j)) return block * c_ + offset - first;
    const std::int64_t summaries = n / l_ * c_ + std::clamp<std::int64_t>(n % l_ - first, 0, c_);
    const std::int64_t others = l_ - c_;  // in a block, in order
    const std::int64_t rank = offset < first ? offset : offset - c_;
    const std::int64_t blocks_a_tile = kTile / others;
    const std::int64_t start = blocks_a_tile > 0
                                   ? block / blocks_a_tile * kTile + block % blocks_a_tile * others
                                   : block * tile_ceil(others);
    return tile_ceil(summaries) + start + rank;
  }

 private:
  std::int64_t first_summary(int head) const { return l_ - (head % num_verts_ + 1) * c_; }
  bool is_summary(int head, std::int64_t j) const {
    const std::int64_t offset = j % l_ - first_summary(head);
    return offset >= 0 && offset < c_;
  }

  std::int64_t l_, c_, num_verts_;
};

// The block-level form: blocks of `block` positions, `vertsize` of them are a summary.
std::int64_t summary_of_blocks(const PatternSpec& spec) {
  check_pattern_field("fixed", "block", spec.block);
  check_pattern_field("fixed", "vertsize", spec.vertsize);
  const std::int64_t blocks = spec.stride / spec.block;
  if (blocks < 1 || spec.stride % spec.block != 0)
    fail(str("attention pattern 'fixed': stride must be a multiple of block, got stride ", spec.stride,
             " and block ", spec.block));
  if (spec.vertsize > blocks || blocks % spec.vertsize != 0)
    fail(str("attention pattern 'fixed': vertsize must divide the stride / block = ", blocks,
             " blocks of a stride, got vertsize ", spec.vertsize));
  return spec.vertsize * spec.block;
}

std::unique_ptr<AttentionPattern> make_fixed(const PatternSpec& spec, int heads) {
  check_pattern_field("fixed", "stride", spec.stride);
  check_pattern_field("fixed", "num_verts", spec.num_verts);
  const std::int64_t c = spec.block ? summary_of_blocks(spec) : spec.c;
  check_pattern_field("fixed", "c", c);
  if (spec.num_verts > spec.stride / c)
    fail(str(
        "attention pattern 'fixed': num_verts sub-blocks of c positions must fit into a block of stride "
        "positions, ",
        "got num_verts ", spec.num_verts, " * c ", c, " > stride ", spec.stride, "; with this stride and c, ",
        c > spec.stride ? str("c can be at most ", spec.stride)
                        : str("num_verts can be at most ", spec.stride / c)));
  if (heads % spec.num_verts != 0)
    fail(str("attention pattern 'fixed': heads must be a multiple of num_verts, got heads ", heads,
             " and num_verts ", spec.num_verts));
  return std::make_unique<Fixed>(spec.stride, c, spec.num_verts);
}

}  // namespace

PatternKind fixed_pattern() {
  return {"fixed",
          "the own block of `stride` positions so far, and `c` summary positions of every earlier block",
          [](const PatternSpec& spec) -> std::vector<std::string> {
            if (spec.block) return {"stride", "num_verts", "block", "vertsize"};
            return {"stride", "c", "num_verts", "block"};
          },
          make_fixed};
}

}  // namespace weft
