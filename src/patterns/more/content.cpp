// SPDX-License-Identifier: MIT
// routing, lsh and topk_blocks: which keys a query sees depends on what q and k hold (src/ops/content.h). As
// a set of positions a pattern of theirs is what a query may see: all earlier ones.
#include "src/patterns/more/content.h"
#include <algorithm>

namespace weft {
namespace {

class Content : public AttentionPattern {
 public:
  Content(const PatternSpec& spec, std::string name) : spec_(spec), name_(std::move(name)) {}
  std::string name() const override { return name_; }
  bool attends(int, int64_t i, int64_t j) const override { return j <= i; }
  void key_runs(int, int64_t i, std::vector<KeyRun>& runs) const override { runs.push_back({0, i + 1}); }
  int64_t most_keys(int) const override {
    return has_labels(spec_) ? spec_.window * rounds_of(spec_) : spec_.block * spec_.blocks;
  }
  void content(int heads, std::vector<ContentHeads>& out) const override {
    out.push_back({spec_, {0, 1, heads}});
  }

 private:
  PatternSpec spec_;
  std::string name_;
};

// The own block of `block` slots and the `earlier` ones before it, up to the own slot, or to the one before.
class Window : public AttentionPattern {
 public:
  Window(int64_t block, int64_t earlier, bool own) : block_(block), earlier_(earlier), own_(own) {}
  std::string name() const override {
    return str(own_ ? "" : "less than ", "the own block of ", block_, " slots and ", earlier_,
               " earlier ones");
  }
  bool attends(int, int64_t i, int64_t j) const override { return first(i) <= j && j < i + own_; }
  void key_runs(int, int64_t i, std::vector<KeyRun>& runs) const override {
    runs.push_back({first(i), i + own_});
  }

 private:
  int64_t first(int64_t i) const { return std::max<int64_t>(0, i / block_ - earlier_) * block_; }
  int64_t block_, earlier_;
  bool own_;
};

std::unique_ptr<AttentionPattern> make_routing(const PatternSpec& spec, int) {
  require_pattern_field("routing", "window", spec.window);
  require_pattern_field("routing", "clusters", spec.clusters);
  return std::make_unique<Content>(spec,
                                   str("routing(clusters ", spec.clusters, ", window ", spec.window, ")"));
}

std::unique_ptr<AttentionPattern> make_lsh(const PatternSpec& spec, int) {
  require_pattern_field("lsh", "window", spec.window);
  return std::make_unique<Content>(
      spec, str("lsh(rounds ", spec.rounds, ", window ", spec.window, ", buckets ", spec.buckets, ")"));
}

std::unique_ptr<AttentionPattern> make_topk_blocks(const PatternSpec& spec, int) {
  require_pattern_field("topk_blocks", "block", spec.block);
  require_pattern_field("topk_blocks", "blocks", spec.blocks);
  if (spec.block % kTile != 0)
    fail("attention pattern 'topk_blocks': block must be a multiple of ", kTile, ", got ", spec.block,
         "; the nearest is ", tile_ceil(spec.block));
  return std::make_unique<Content>(spec,
                                   str("topk_blocks(block ", spec.block, ", blocks ", spec.blocks, ")"));
}
}  // namespace

bool has_labels(const PatternSpec& spec) { return spec.kind != "topk_blocks"; }
int64_t rounds_of(const PatternSpec& spec) { return spec.kind == "lsh" ? spec.rounds : 1; }

int64_t hash_columns(const PatternSpec& spec, int64_t context) {
  const int64_t wanted = spec.buckets ? spec.buckets : std::min(kMostLabels, context / 64);
  int64_t columns = 2;
  while (columns * columns < wanted) columns += 2;
  return columns;
}
int64_t labels_of(const PatternSpec& spec, int64_t context) {
  return spec.kind == "routing" ? spec.clusters : hash_columns(spec, context) * hash_columns(spec, context);
}

std::unique_ptr<AttentionPattern> slots_of(const PatternSpec& spec) {
  if (has_labels(spec)) return std::make_unique<Window>(1, spec.window, false);
  return std::make_unique<Window>(spec.block, spec.blocks - 1, true);
}

std::vector<ContentHeads> content_of(const AttentionPattern& pattern, int heads) {
  std::vector<ContentHeads> content;
  pattern.content(heads, content);
  return content;
}

void refuse_content(const AttentionPattern& pattern, int heads, const char* who) {
  if (!content_of(pattern, heads).empty())
    fail(who, " takes patterns of positions alone, and ", pattern.name(), " depends on content");
}

PatternKind routing_pattern() {
  return {"routing", "the last `window` positions of the own of `clusters` clusters of queries",
          reads({"clusters", "window"}), make_routing, true};
}
PatternKind lsh_pattern() {
  return {"lsh",
          "the last `window` positions of the own one of `buckets` buckets, in each of `rounds` rounds",
          reads({"rounds", "window", "buckets"}), make_lsh, true};
}
PatternKind topk_blocks_pattern() {
  return {"topk_blocks",
          "the own block and the `blocks` - 1 earlier ones that its first query scores highest",
          reads({"block", "blocks"}), make_topk_blocks, true};
}
}  // namespace weft
