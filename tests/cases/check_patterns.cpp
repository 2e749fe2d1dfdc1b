// SPDX-License-Identifier: MIT
// Enumeration, tiles, cache rows and pictures against the predicate, pair by pair.
#include "tests/cases/random_case.h"
#include "train/inspect/picture.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace weft {
namespace {
// Which pairs of one head are attended, (queries, keys).
class PairSet {
 public:
  PairSet(int64_t queries, int64_t keys)
      : queries_(queries),
        keys_(keys),
        has_(static_cast<std::size_t>(queries * keys), 0) {}

  static PairSet defined(const AttentionPattern& pattern, int head, Lengths n) {
    PairSet pairs(n.queries, n.keys);
    for (int64_t i = 0; i < n.queries; ++i)
      for (int64_t j = 0; j < n.keys; ++j) pairs.has_[i * n.keys + j] = pattern.attends(head, i, j);
    return pairs;
  }

  bool has(int64_t i, int64_t j) const { return has_[i * keys_ + j] != 0; }

  void add(int64_t i, int64_t j, const char* what) {
    WEFT_CHECK(i >= 0 && i < queries_ && j >= 0 && j < keys_, what, ": pair (", i, ", ", j,
               ") is outside of the sequence");
    WEFT_CHECK(!has(i, j), what, ": pair (", i, ", ", j, ") is there twice");
    has_[i * keys_ + j] = 1;
  }

  int64_t count() const { return std::ranges::count(has_, 1); }

  void check_equal(const PairSet& defined, const char* what, int head) const {
    for (int64_t i = 0; i < queries_; ++i)
      for (int64_t j = 0; j < keys_; ++j)
        WEFT_CHECK(has(i, j) == defined.has(i, j), what, ", head ", head, ": query ", i,
                   has(i, j) ? " has key " : " lacks key ", j);
  }

 private:
  int64_t queries_, keys_;
  std::vector<char> has_;
};

// Every position has one place in the order; in a later part at most one.
void check_order(const int32_t* order, int64_t places, int64_t n, bool all, const char* what) {
  std::vector<int> count(n, 0);
  for (int64_t place = 0; place < places; ++place) {
    WEFT_CHECK(order[place] >= -1 && order[place] < n, what, ": place ", place, " holds position ",
               order[place], " of ", n);
    if (order[place] >= 0) ++count[order[place]];
  }
  for (int64_t position = 0; position < n; ++position)
    WEFT_CHECK(count[position] == 1 || (!all && count[position] == 0), what, ": position ",
               position, " has ", count[position], " places");
}

// One direction of a tile map.
struct Direction {
  int32_t tiles;
  const int32_t *start, *tile, *mask, *own, *other, *schedule;
  const uint64_t* masks;

  template <class F>
  void for_each_pair(int edge, F&& f) const {
    for (int32_t t = 0; t < tiles; ++t)
      for (int32_t e = start[t]; e < start[t + 1]; ++e) {
        WEFT_CHECK(e == start[t] || tile[e - 1] < tile[e], "tiles: those of tile ", t,
                   " do not ascend");
        for (int r = 0; r < edge; ++r)
          for (int k = 0; k < edge; ++k)
            if (mask[e] < 0 || (masks[int64_t{mask[e]} * edge + r] >> k & 1) != 0)
              f(own[int64_t{t} * edge + r], other[int64_t{tile[e]} * edge + k]);
      }
  }

  void check_schedule() const {
    std::vector<char> seen(tiles, 0);
    for (int32_t k = 0; k < tiles; ++k) {
      WEFT_CHECK(schedule[k] >= 0 && schedule[k] < tiles && !seen[schedule[k]], "schedule: entry ",
                 k, " is ", schedule[k]);
      seen[schedule[k]] = 1;
    }
  }
};
}  // namespace

void check_enumeration(const SelftestCase& c) {
  const Lengths n = c.lengths();
  std::vector<int32_t> keys;
  for (int head = 0; head < c.heads(); ++head) {
    const PairSet defined = PairSet::defined(*c.pattern, head, n);
    const int first = c.first_head(c.pattern->group(head));
    if (first != head) defined.check_equal(PairSet::defined(*c.pattern, first, n), "groups", head);
    PairSet listed(n.queries, n.keys);
    for (int64_t i = 0; i < n.queries; ++i) {
      keys.clear();
      c.pattern->keys_of(head, i, n.keys, keys);
      WEFT_CHECK(std::ranges::is_sorted(keys), "enumeration: keys of query ", i, " do not ascend");
      for (const int32_t j : keys) listed.add(i, j, "enumeration");
      WEFT_CHECK(!c.pattern->causal() || keys.empty() || keys.back() <= i, "causal: query ", i,
                 " sees key ", keys.back());
    }
    listed.check_equal(defined, "enumeration", head);
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
    PairSet rows(n.queries, n.keys), columns(n.queries, n.keys);
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
      const Direction by_row{m.query_tiles, m.row_start, m.row_tile,     m.row_mask,
                             m.query_order, m.key_order, m.row_schedule, m.masks};
      const Direction by_column{m.key_tiles, m.col_start,   m.col_tile,     m.col_mask,
                                m.key_order, m.query_order, m.col_schedule, m.masks_transposed};
      by_row.check_schedule();
      by_column.check_schedule();
      by_row.for_each_pair(edge, [&](int64_t i, int64_t j) { rows.add(i, j, "tiles of queries"); });
      by_column.for_each_pair(edge,
                              [&](int64_t j, int64_t i) { columns.add(i, j, "tiles of keys"); });
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

void check_picture(const SelftestCase& c) {
  const Lengths n = c.lengths();
  for (int group = 0; group < c.pattern->groups(c.heads()); ++group) {
    const int head = c.first_head(group);
    const ConnectivityGrid grid = connectivity(*c.pattern, head, n, std::max(n.queries, n.keys));
    WEFT_CHECK(grid.rows == n.queries && grid.columns == n.keys, "picture: ", grid.rows,
               " rows and ", grid.columns, " columns");
    for (int64_t i = 0; i < n.queries; ++i)
      for (int64_t j = 0; j < n.keys; ++j)
        WEFT_CHECK((grid.share[i * n.keys + j] != 0) == c.pattern->attends(head, i, j),
                   "picture, head ", head, ": pair (", i, ", ", j, ") has share ",
                   grid.share[i * n.keys + j]);
  }
}
}  // namespace weft
