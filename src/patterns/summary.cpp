// SPDX-License-Identifier: MIT
// summary: c positions of every block of l = `stride` so far, the own block included:
//   S_i = {j : j <= i, l - (u + 1) c <= j mod l < l - u c}
// the second step of fixed attention (A^(2) of arXiv 1904.10509, section 4.3). The first queries see nothing.
// Slots: summary keys packed, then the others, which no query sees.
#include "src/patterns/summary.h"

#include <algorithm>

namespace weft {
namespace {

class Summary : public AttentionPattern {
 public:
  explicit Summary(const SummaryPositions& summaries) : summaries_(summaries) {}
  std::string name() const override { return "summary" + summaries_.text(); }
  int groups(int heads) const override { return summaries_.groups(heads); }
  int group(int head) const override { return summaries_.group(head); }

  bool attends(int head, std::int64_t i, std::int64_t j) const override {
    return j <= i && summaries_.contains(head, j);
  }
  void key_runs(int head, std::int64_t i, std::vector<KeyRun>& runs) const override {
    summaries_.runs(head, i + 1, runs);
    runs.back().end = std::min(runs.back().end, i + 1);
  }
  std::int64_t key_slot(int head, std::int64_t j, std::int64_t n) const override {
    if (summaries_.contains(head, j)) return summaries_.rank(head, j);
    return tile_ceil(summaries_.count(head, n)) + j - summaries_.count(head, j);
  }

 private:
  SummaryPositions summaries_;
};

// The block-level form: blocks of `block` positions, `vertsize` of them are a summary.
std::int64_t summary_of_blocks(const char* kind, const PatternSpec& spec) {
  check_pattern_field(kind, "block", spec.block);
  check_pattern_field(kind, "vertsize", spec.vertsize);
  const std::int64_t blocks = spec.stride / spec.block;
  if (blocks < 1 || spec.stride % spec.block != 0)
    fail(str("attention pattern '", kind, "': stride must be a multiple of block, got stride ", spec.stride,
             " and block ", spec.block));
  if (spec.vertsize > blocks || blocks % spec.vertsize != 0)
    fail(str("attention pattern '", kind, "': vertsize must divide the stride / block = ", blocks,
             " blocks of a stride, got vertsize ", spec.vertsize));
  return spec.vertsize * spec.block;
}

}  // namespace

SummaryPositions SummaryPositions::of(const char* kind, const PatternSpec& spec, int heads) {
  check_pattern_field(kind, "stride", spec.stride);
  check_pattern_field(kind, "num_verts", spec.num_verts);
  const std::int64_t c = spec.block ? summary_of_blocks(kind, spec) : spec.c;
  check_pattern_field(kind, "c", c);
  if (spec.num_verts > spec.stride / c)
    fail(str(
        "attention pattern '", kind,
        "': num_verts sub-blocks of c positions must fit into a block of stride positions, got num_verts ",
        spec.num_verts, " * c ", c, " > stride ", spec.stride, "; with this stride and c, ",
        c > spec.stride ? str("c can be at most ", spec.stride)
                        : str("num_verts can be at most ", spec.stride / c)));
  if (heads % spec.num_verts != 0)
    fail(str("attention pattern '", kind, "': heads must be a multiple of num_verts, got heads ", heads,
             " and num_verts ", spec.num_verts));
  return {spec.stride, c, spec.num_verts};
}

std::vector<std::string> SummaryPositions::fields(const PatternSpec& spec) {
  if (spec.block) return {"stride", "num_verts", "block", "vertsize"};
  return {"stride", "c", "num_verts", "block"};
}

std::string SummaryPositions::text() const {
  return str("(stride ", l, ", c ", c, ", num_verts ", num_verts, ")");
}

std::int64_t SummaryPositions::count(int head, std::int64_t n) const {
  return n / l * c + std::clamp<std::int64_t>(n % l - first(head), 0, c);
}

void SummaryPositions::runs(int head, std::int64_t end, std::vector<KeyRun>& runs) const {
  for (std::int64_t block = 0; block < end; block += l)
    runs.push_back({block + first(head), block + first(head) + c});
}

PatternKind summary_pattern() {
  return {"summary", "`c` summary positions of every block of `stride` so far", SummaryPositions::fields,
          [](const PatternSpec& spec, int heads) {
            return std::make_unique<Summary>(SummaryPositions::of("summary", spec, heads));
          }};
}

}  // namespace weft
