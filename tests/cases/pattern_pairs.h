// SPDX-License-Identifier: MIT
// Pairs of (query, key) of one head: those of the predicate, of the key lists and of tile tables.
#pragma once

#include "src/config/names.h"
#include "src/patterns/packed_maps.h"
#include "src/patterns/pattern.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace weft {
class PairSet {
 public:
  explicit PairSet(Lengths n)
      : n_(n),
        has_(static_cast<std::size_t>(n.queries * n.keys), 0) {}

  static PairSet defined(const AttentionPattern& pattern, int head, Lengths n) {
    PairSet pairs(n);
    for (int64_t i = 0; i < n.queries; ++i)
      for (int64_t j = 0; j < n.keys; ++j) pairs.has_[i * n.keys + j] = pattern.attends(head, i, j);
    return pairs;
  }

  bool has(int64_t i, int64_t j) const { return has_[i * n_.keys + j] != 0; }

  // Error: the pair is there, or no such pair exists.
  void add(int64_t i, int64_t j, const char* what) {
    WEFT_CHECK(i >= 0 && i < n_.queries && j >= 0 && j < n_.keys, what, ": pair (", i, ", ", j,
               ") is outside of the sequence");
    WEFT_CHECK(!has(i, j), what, ": pair (", i, ", ", j, ") is there twice");
    has_[i * n_.keys + j] = 1;
  }

  int64_t count() const { return std::ranges::count(has_, 1); }

  // Error names the first difference.
  void check_equal(const PairSet& defined, const char* what, int head) const {
    WEFT_CHECK(n_.queries == defined.n_.queries && n_.keys == defined.n_.keys, what, ", head ",
               head, ": lengths differ");
    for (int64_t i = 0; i < n_.queries; ++i)
      for (int64_t j = 0; j < n_.keys; ++j)
        WEFT_CHECK(has(i, j) == defined.has(i, j), what, ", head ", head, ": query ", i,
                   has(i, j) ? " has key " : " lacks key ", j);
  }

 private:
  Lengths n_;
  std::vector<char> has_;
};

// One direction of a tile map: tiles of queries with their key tiles, or the transposed.
struct TileLists {
  int32_t tiles;
  const int32_t *start, *tile, *mask, *own, *other, *schedule;
  const uint64_t* masks;

  static TileLists of_queries(const TileMap& m) {
    return {m.query_tiles, m.row_start, m.row_tile,     m.row_mask,
            m.query_order, m.key_order, m.row_schedule, m.masks};
  }

  static TileLists of_keys(const TileMap& m) {
    return {m.key_tiles, m.col_start,   m.col_tile,     m.col_mask,
            m.key_order, m.query_order, m.col_schedule, m.masks_transposed};
  }

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

// Adds the pairs of a map to `rows`, as its query tiles list them, and to `columns`, as its key
// tiles do. Error: a pair is there twice, or a schedule is no permutation.
inline void add_pairs(const TileMap& m, int edge, PairSet& rows, PairSet& columns) {
  const TileLists queries = TileLists::of_queries(m), keys = TileLists::of_keys(m);
  queries.check_schedule();
  keys.check_schedule();
  queries.for_each_pair(edge, [&](int64_t i, int64_t j) { rows.add(i, j, "tiles of queries"); });
  keys.for_each_pair(edge, [&](int64_t j, int64_t i) { columns.add(i, j, "tiles of keys"); });
}

// Error unless every position has one place in the order, or with `all` false at most one.
inline void check_order(const int32_t* order, int64_t places, int64_t n, bool all,
                        const char* what) {
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

// Error unless keys_of() appends the keys of attends(), each once and in order, and a causal
// pattern names no later one.
inline void check_keys(const AttentionPattern& pattern, int head, Lengths n) {
  PairSet listed(n);
  std::vector<int32_t> keys;
  for (int64_t i = 0; i < n.queries; ++i) {
    keys.assign(1, -7);
    pattern.keys_of(head, i, n.keys, keys);
    WEFT_CHECK(keys.front() == -7, "enumeration: keys_of() does not append");
    keys.erase(keys.begin());
    WEFT_CHECK(std::ranges::is_sorted(keys), "enumeration: keys of query ", i, " do not ascend");
    for (const int32_t j : keys) listed.add(i, j, "enumeration");
    WEFT_CHECK(!pattern.causal() || keys.empty() || keys.back() <= i, "causal: query ", i,
               " sees key ", keys.back());
  }
  listed.check_equal(PairSet::defined(pattern, head, n), "enumeration", head);
}
}  // namespace weft
