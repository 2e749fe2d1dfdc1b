// SPDX-License-Identifier: MIT
// Enumeration, tiles and cache rows against the predicate, pair by pair.
#include "src/patterns/cache_rows.h"
#include "tests/cases/attention_problem.h"
#include "tests/cases/pattern_pairs.h"
#include "tests/cases/random_case.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace weft {
void check_enumeration(const SelftestCase& c) {
  const Lengths n = c.lengths();
  for (int head = 0; head < c.heads(); ++head) {
    const PairSet defined = PairSet::defined(*c.pattern, head, n);
    const int first = c.first_head(c.pattern->group(head));
    if (first != head) defined.check_equal(PairSet::defined(*c.pattern, first, n), "groups", head);
    check_keys(*c.pattern, head, n);
    WEFT_CHECK(needed_pairs(*c.pattern, head, n) == defined.count(),
               "needed pairs: ", needed_pairs(*c.pattern, head, n), " of ", defined.count());
  }
}

void check_tile_maps(const SelftestCase& c) {
  const Lengths n = c.lengths();
  const attention_test::HostMaps host(*c.pattern, c.heads(), n, std::max(c.size.qk, c.size.v),
                                      c.edge);
  const AttentionMaps& maps = host.maps;
  for (int group = 0; group < maps.groups; ++group) {
    const int head = c.first_head(group);
    PairSet rows(n), columns(n);
    bool first = true;
    for (int p = 0; p < maps.passes; ++p) {
      const TileMap& m = maps.pass[p].maps[group];
      const int edge = maps.pass[p].edge;
      if (m.query_tiles == 0 && m.key_tiles == 0) continue;
      WEFT_CHECK(m.accumulate == !first, "tiles: pass ", p, " of group ", group,
                 first ? " goes on from nothing" : " stores over an earlier one");
      first = false;
      check_order(m.query_order, int64_t{m.query_tiles} * edge, n.queries, !m.accumulate,
                  "query order");
      check_order(m.key_order, int64_t{m.key_tiles} * edge, n.keys, !m.accumulate, "key order");
      add_pairs(m, edge, rows, columns);
    }
    WEFT_CHECK(!first, "tiles: group ", group, " has none");
    const PairSet defined = PairSet::defined(*c.pattern, head, n);
    rows.check_equal(defined, "tiles of queries", head);
    columns.check_equal(defined, "tiles of keys", head);
  }
}

void check_cache_rows(const SelftestCase& c) {
  const Lengths n = c.lengths();
  if (!c.pattern->causal() || n.queries != n.keys) return;
  std::vector<int32_t> keys;
  for (int group = 0; group < c.pattern->groups(c.heads()); ++group) {
    const int head = c.first_head(group);
    const CacheRows cache = cache_rows(*c.pattern, head, n.keys);
    std::vector<int64_t> holds(cache.rows, -1);  // row -> position
    for (int64_t i = 0; i < n.keys; ++i) {
      const int32_t row = cache.row_of[i];
      WEFT_CHECK(row >= -1 && row < cache.rows, "cache rows: position ", i, " has row ", row,
                 " of ", cache.rows);
      if (row >= 0) holds[row] = i;
      keys.clear();
      c.pattern->keys_of(head, i, n.keys, keys);
      for (const int32_t j : keys)
        WEFT_CHECK(cache.row_of[j] >= 0 && holds[cache.row_of[j]] == j, "cache rows: query ", i,
                   " of head ", head, " reads key ", j, ", which is not kept");
    }
  }
}
}  // namespace weft
