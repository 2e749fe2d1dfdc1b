// SPDX-License-Identifier: MIT
// Fixed attention (arXiv 1904.10509, section 4.3), with l = `stride` and u = head mod num_verts:
// its two steps, and their union in one head.
//   block    A^(1)   S_i = {j : j <= i, floor(i / l) = floor(j / l)}
//   summary  A^(2)   S_i = {j : j <= i, l - (u + 1) c <= j mod l < l - u c}
//   fixed            the union of both
// block is the query's own block so far. summary is c positions of every block so far, the query's
// own included; the first queries see nothing.
// Slots: queries stay in order. Summary keys come first, packed: earlier blocks cost no more tiles
// than their summaries fill. Then come the others: of summary in order, no query sees them; of
// fixed block by block: those that fit into a tile share one, larger ones start on a tile.
#include "src/patterns/pattern.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace weft {
namespace {
// The block-level form: blocks of `block` positions, `vertsize` of them are a summary.
int64_t summary_of_blocks(const char* kind, const PatternSpec& spec) {
  check_pattern_field(kind, "block", spec.block);
  check_pattern_field(kind, "vertsize", spec.vertsize);
  const int64_t blocks = spec.stride / spec.block;
  if (blocks < 1 || spec.stride % spec.block != 0)
    refuse_pattern(kind, "stride must be a multiple of block, got stride ", spec.stride,
                   " and block ", spec.block);
  if (spec.vertsize > blocks || blocks % spec.vertsize != 0)
    refuse_pattern(kind, "vertsize must divide the stride / block = ", blocks,
                   " blocks of a stride, got vertsize ", spec.vertsize);
  return spec.vertsize * spec.block;
}

// The summary positions: of every block the c from first(head) on. Heads take sub-blocks in turn,
// the last one first. c is given, or, in blocks as OpenAI's code has it, `block` and `vertsize`: c
// = vertsize * block.
struct SummaryPositions {
  int64_t l = 0, c = 0, num_verts = 1;

  int64_t first(int head) const { return l - (head % num_verts + 1) * c; }

  bool contains(int head, int64_t j) const {
    const int64_t offset = j % l - first(head);
    return offset >= 0 && offset < c;
  }

  // Of a summary position among all of them, and how many there are below n.
  int64_t rank(int head, int64_t j) const { return j / l * c + j % l - first(head); }

  int64_t count(int head, int64_t n) const {
    return n / l * c + std::clamp<int64_t>(n % l - first(head), 0, c);
  }

  // The summaries of the blocks that begin below `end`, appended.
  void runs(int head, int64_t end, std::vector<KeyRun>& runs) const {
    for (int64_t block = 0; block < end; block += l)
      runs.push_back({block + first(head), block + first(head) + c});
  }
};

// Throws Error that names the wrong field of a pattern of this kind.
SummaryPositions summaries_of(const char* kind, const PatternSpec& spec, int heads) {
  check_pattern_field(kind, "stride", spec.stride);
  check_pattern_field(kind, "num_verts", spec.num_verts);
  const int64_t c = spec.block ? summary_of_blocks(kind, spec) : spec.c;
  check_pattern_field(kind, "c", c);
  if (spec.num_verts > spec.stride / c)
    refuse_pattern(kind,
                   "num_verts sub-blocks of c positions must fit into a block of stride positions, "
                   "got num_verts ",
                   spec.num_verts, " * c ", c, " > stride ", spec.stride,
                   "; with this stride and c, ",
                   c > spec.stride ? str("c can be at most ", spec.stride)
                                   : str("num_verts can be at most ", spec.stride / c));
  if (heads % spec.num_verts != 0)
    refuse_pattern(kind, "heads must be a multiple of num_verts, got heads ", heads,
                   " and num_verts ", spec.num_verts);
  return {spec.stride, c, spec.num_verts};
}

// That summaries_of() reads.
std::vector<std::string> summary_fields(const PatternSpec& spec) {
  if (spec.block) return {"stride", "num_verts", "block", "vertsize"};
  return {"stride", "c", "num_verts", "block"};
}

class Block : public AttentionPattern {
 public:
  explicit Block(int64_t l)
      : l_(l) {}

  std::string name() const override { return str("block(stride ", l_, ")"); }

  bool attends(int, int64_t i, int64_t j) const override { return j <= i && i / l_ == j / l_; }

  void key_runs(int, int64_t i, std::vector<KeyRun>& runs) const override {
    runs.push_back({i / l_ * l_, i + 1});
  }

 private:
  int64_t l_;
};

class Summary : public AttentionPattern {
 public:
  explicit Summary(const SummaryPositions& summaries, const char* kind = "summary")
      : summaries_(summaries),
        kind_(kind) {}

  std::string name() const override {
    return str(kind_, "(stride ", summaries_.l, ", c ", summaries_.c, ", num_verts ",
               summaries_.num_verts, ")");
  }

  int groups(int heads) const override {
    return static_cast<int>(std::min<int64_t>(heads, summaries_.num_verts));
  }

  int group(int head) const override { return static_cast<int>(head % summaries_.num_verts); }

  bool attends(int head, int64_t i, int64_t j) const override {
    return j <= i && summaries_.contains(head, j);
  }

  void key_runs(int head, int64_t i, std::vector<KeyRun>& runs) const override {
    summaries_.runs(head, i + 1, runs);
    runs.back().end = std::min(runs.back().end, i + 1);
  }

  int64_t key_slot(int head, int64_t j, int64_t n) const override {
    if (summaries_.contains(head, j)) return summaries_.rank(head, j);
    return tile_ceil(summaries_.count(head, n)) + other_slot(head, j);
  }

 protected:
  // Of a position that is no summary, among those.
  virtual int64_t other_slot(int head, int64_t j) const { return j - summaries_.count(head, j); }

  SummaryPositions summaries_;

 private:
  const char* kind_;
};

class Fixed : public Summary {
 public:
  explicit Fixed(const SummaryPositions& summaries)
      : Summary(summaries, "fixed") {}

  bool attends(int head, int64_t i, int64_t j) const override {
    return j <= i && (i / summaries_.l == j / summaries_.l || summaries_.contains(head, j));
  }

  void key_runs(int head, int64_t i, std::vector<KeyRun>& runs) const override {
    const int64_t block = i / summaries_.l * summaries_.l;
    summaries_.runs(head, block, runs);
    runs.push_back({block, i + 1});
  }

 private:
  int64_t other_slot(int head, int64_t j) const override {
    const int64_t block = j / summaries_.l, offset = j % summaries_.l;
    const int64_t others = summaries_.l - summaries_.c;  // in a block, in order
    const int64_t rank = offset < summaries_.first(head) ? offset : offset - summaries_.c;
    const int64_t blocks_a_tile = kTile / others;
    const int64_t start = blocks_a_tile > 0
                              ? block / blocks_a_tile * kTile + block % blocks_a_tile * others
                              : block * tile_ceil(others);
    return start + rank;
  }
};
}  // namespace

PatternKind block_pattern() {
  return {"block", "the own block of `stride` positions so far", reads({"stride"}),
          [](const PatternSpec& spec, int) {
            check_pattern_field("block", "stride", spec.stride);
            return std::make_unique<Block>(spec.stride);
          }};
}

PatternKind summary_pattern() {
  return {"summary", "`c` summary positions of every block of `stride` so far", summary_fields,
          [](const PatternSpec& spec, int heads) {
            return std::make_unique<Summary>(summaries_of("summary", spec, heads));
          }};
}

PatternKind fixed_pattern() {
  return {"fixed",
          "the own block of `stride` positions so far, and `c` summary positions of every earlier "
          "block",
          summary_fields, [](const PatternSpec& spec, int heads) {
            return std::make_unique<Fixed>(summaries_of("fixed", spec, heads));
          }};
}
}  // namespace weft
