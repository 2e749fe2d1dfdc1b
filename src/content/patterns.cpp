// SPDX-License-Identifier: MIT
// routing, lsh and topk_blocks: which keys a query sees depends on what q and k hold.
#include "src/content/patterns.h"

#include "src/config/names.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
using Field = std::pair<const char*, int64_t>;

std::vector<Field> fields_of(const PatternSpec& spec) {
  if (spec.kind == "routing") return {{"clusters", spec.clusters}, {"window", spec.window}};
  if (spec.kind == "topk_blocks") return {{"block", spec.block}, {"blocks", spec.blocks}};
  return {{"rounds", spec.rounds}, {"window", spec.window}, {"buckets", spec.buckets}};
}

// What a query may see: all earlier positions. As `slots` the neighbours in place of which content
// puts others: of labels the last `window` slots before the own one; of blocks the own one so far,
// and earlier.
class Content : public AttentionPattern {
 public:
  explicit Content(const PatternSpec& spec, bool slots = false)
      : spec_(spec),
        slots_(slots) {}

  std::string name() const override {
    const auto field_text = [](const Field& field) { return str(field.first, ' ', field.second); };
    return str(slots_ ? "slots of " : "", spec_.kind, "(",
               joined(fields_of(spec_), ", ", field_text), ")");
  }

  bool attends(int, int64_t i, int64_t j) const override { return first(i) <= j && j < end(i); }

  void key_runs(int, int64_t i, std::vector<KeyRun>& runs) const override {
    runs.push_back({first(i), end(i)});
  }

  int64_t most_keys(int) const override {
    if (slots_) return 0;
    return has_labels(spec_) ? spec_.window * rounds_of(spec_) : spec_.block * spec_.blocks;
  }

  void dynamic(int heads, std::vector<DynamicRange>& out) const override {
    if (!slots_) out.push_back({spec_, {0, 1, heads}, slots_of(spec_), rounds_of(spec_)});
  }

 private:
  int64_t first(int64_t i) const {
    if (!slots_) return 0;
    return std::max<int64_t>(0, has_labels(spec_)
                                    ? i - spec_.window
                                    : (i / spec_.block - spec_.blocks + 1) * spec_.block);
  }

  int64_t end(int64_t i) const { return slots_ && has_labels(spec_) ? i : i + 1; }

  PatternSpec spec_;
  bool slots_;
};

std::unique_ptr<AttentionPattern> make_content(const PatternSpec& spec, int) {
  const char* kind = spec.kind.c_str();
  for (const auto& [field, value] : fields_of(spec))
    if (field != std::string("buckets")) require_pattern_field(kind, field, value);
  if (!has_labels(spec) && spec.block % kTile != 0)
    refuse_pattern(kind, "block must be a multiple of ", kTile, ", got ", spec.block,
                   "; the nearest is ", tile_ceil(spec.block));
  return std::make_unique<Content>(spec);
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
  return spec.kind == "routing" ? spec.clusters
                                : hash_columns(spec, context) * hash_columns(spec, context);
}

std::unique_ptr<AttentionPattern> slots_of(const PatternSpec& spec) {
  return std::make_unique<Content>(spec, true);
}

PatternKind routing_pattern() {
  return {"routing",
          "the last `window` positions of the own of `clusters` clusters of queries",
          reads({"clusters", "window"}),
          make_content,
          {"clusters", "window"},
          true};
}

PatternKind lsh_pattern() {
  return {
      "lsh",
      "the last `window` positions of the own one of `buckets` buckets, in each of `rounds` rounds",
      reads({"rounds", "window", "buckets"}),
      make_content,
      {"window"},
      true};
}

PatternKind topk_blocks_pattern() {
  return {"topk_blocks",
          "the own block and the `blocks` - 1 earlier ones that its first query scores highest",
          reads({"block", "blocks"}),
          make_content,
          {"block", "blocks"},
          true};
}
}  // namespace weft
