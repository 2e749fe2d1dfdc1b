// SPDX-License-Identifier: MIT
// What kernels/attention/tile_tables.h asks of a pattern.
#include "src/patterns/packed_maps.h"

#include "src/patterns/pattern.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace weft {
namespace {
AttendedPairs pairs_of(const AttentionPattern& pattern, int head, Lengths n) {
  for (const int64_t length : {n.queries, n.keys})
    WEFT_CHECK(length >= 1 && length <= kMaxPositions, "a sequence has 1 to ", kMaxPositions,
               " positions, got ", length);
  const Lengths made_for = pattern.lengths();
  WEFT_CHECK((made_for.queries == 0 || n.queries <= made_for.queries) &&
                 (made_for.keys == 0 || n.keys <= made_for.keys),
             pattern.name(), " is made for ", made_for.queries, " queries and ", made_for.keys,
             " keys, got ", n.queries, " and ", n.keys);
  return {
      .name = pattern.name(),
      .queries = n.queries,
      .keys = n.keys,
      .key_runs = [&pattern, head](int64_t i,
                                   std::vector<KeyRun>& runs) { pattern.key_runs(head, i, runs); },
      .query_slot = [&pattern, head,
                     n](int64_t i) { return pattern.query_slot(head, i, n.queries); },
      .key_slot = [&pattern, head, n](int64_t j) { return pattern.key_slot(head, j, n.keys); },
  };
}

std::vector<int32_t> groups_of_heads(const AttentionPattern& pattern, int heads) {
  std::vector<int32_t> group_of_head;
  for (int head = 0; head < heads; ++head) group_of_head.push_back(pattern.group(head));
  return group_of_head;
}
}  // namespace

TileTables build_tile_tables(const AttentionPattern& part, int head, Lengths n, int edge) {
  return build_tile_tables(pairs_of(part, head, n), edge);
}

TileTables build_best_tables(const AttentionPattern& part, int head, Lengths n, int64_t head_size) {
  return build_best_tables(pairs_of(part, head, n), head_size);
}

PackedMaps::PackedMaps(const AttentionPattern& pattern, int heads, Lengths n, int64_t head_size,
                       int edge)
    : PackedTables(n.queries, n.keys, groups_of_heads(pattern, heads), pattern.groups(heads)) {
  for (int group = 0; group < groups(); ++group) {
    const auto found = std::ranges::find(group_of_head(), group);
    WEFT_CHECK(found != group_of_head().end(), pattern.name(), ": group ", group, " of ", groups(),
               " has no head");
    std::vector<PatternPart> parts;
    pairs_.emplace_back();
    const auto first = static_cast<int>(found - group_of_head().begin());
    if (pattern.most_keys(first)) continue;  // dynamic heads have maps of each batch
    pattern.parts(first, parts);
    WEFT_CHECK(!parts.empty() && parts.size() <= AttentionMaps::kMaxPasses / 2, pattern.name(),
               ": a head has ", parts.size(), " parts; 1 to ", AttentionMaps::kMaxPasses / 2,
               " work");
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const auto& [part, head] = parts[p];
      TileTables tables = edge ? build_tile_tables(*part, head, n, edge)
                               : build_best_tables(*part, head, n, head_size);
      pairs_.back() += tables.pairs;
      add(group, std::move(tables), n.queries == n.keys ? part->band(head, n.keys) : Band{}, p > 0);
    }
  }
}

const PairCount& PackedMaps::pairs(int head) const { return pairs_.at(group_of_head().at(head)); }
}  // namespace weft
