// SPDX-License-Identifier: MIT
// Random patterns for tests, and what every pattern has to satisfy.
#pragma once

#include "src/attention_maps.h"
#include "src/patterns/pattern.h"
#include "tests/cases/pattern_pairs.h"
#include "tests/cases/random_case.h"
#include "tests/src/patterns/definitions.h"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace weft {
struct RandomCase {
  PatternSpec spec;
  std::unique_ptr<AttentionPattern> pattern;
  int64_t n = 0;
  int heads = 1, head = 0;

  std::string text() const {
    return str(pattern->name(), ", head ", head, " of ", heads, ", n ", n);
  }
};

// With `any_direction` also patterns that see later keys.
inline RandomCase random_case(std::mt19937& random, bool any_direction = false) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  constexpr int64_t kLengths[] = {1, 2, 7, 31, 63, 64, 65, 100, 127, 128, 129, 193, 300};
  constexpr int kHeads[] = {1, 2, 3, 4, 6, 8, 12};
  RandomCase c;
  c.n = kLengths[pick(0, std::size(kLengths) - 1)];
  c.heads = kHeads[pick(0, std::size(kHeads) - 1)];
  c.head = static_cast<int>(pick(0, c.heads - 1));
  c.spec = random_pattern(random, c.n, c.heads, any_direction);
  c.pattern = make_pattern(c.spec, c.heads);
  return c;
}

// The map of tables in host memory that are all there is of a head.
inline TileMap map_of(const TileTables& t) {
  TileMap m;
  m.query_tiles = t.query_tiles(), m.key_tiles = t.key_tiles();
  m.query_order = t.query_order.data(), m.key_order = t.key_order.data();
  m.row_start = t.row_start.data(), m.row_tile = t.row_tile.data(), m.row_mask = t.row_mask.data();
  m.col_start = t.col_start.data(), m.col_tile = t.col_tile.data(), m.col_mask = t.col_mask.data();
  m.row_schedule = t.row_schedule.data(), m.col_schedule = t.col_schedule.data();
  m.masks = t.masks.data(), m.masks_transposed = t.masks_transposed.data();
  return m;
}

// A permutation of tiles with the most work first, or of runs of `run` neighbours with the most
// work first. A shorter last run counts as a whole one, with the mean work of its tiles.
inline void expect_most_work_first(const std::vector<int32_t>& schedule,
                                   const std::vector<int32_t>& start, int32_t run) {
  ASSERT_EQ(schedule.size(), start.size() - 1);
  std::vector<int32_t> sorted = schedule, all(schedule.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all) << "a permutation";
  const auto tiles = static_cast<int32_t>(all.size());
  const auto work = [&](int32_t first, int32_t count) {
    const int32_t end = std::min(first + count, tiles);
    return (start[end] - start[first]) * count / (end - first);
  };
  bool by_tile = true, by_run = true;
  for (std::size_t k = 1; k < schedule.size(); ++k) {
    const int32_t a = schedule[k - 1], b = schedule[k], of_a = a / run * run, of_b = b / run * run;
    by_tile = by_tile && (work(a, 1) > work(b, 1) || (work(a, 1) == work(b, 1) && a < b));
    by_run = by_run && (of_a == of_b ? a == b + 1 : work(of_a, run) >= work(of_b, run));
  }
  EXPECT_TRUE(by_tile || by_run);
}

// The tasks that have a query tile take turns in the order of their ranks, and the last of them is
// marked.
inline void expect_turns(const TileTables& t) {
  ASSERT_EQ(t.col_turn.size(), t.col_tile.size());
  std::vector<std::set<int32_t>> tasks(static_cast<std::size_t>(t.query_tiles()));
  for (int32_t rank = 0; rank < t.key_tiles(); ++rank)
    for (int32_t at = t.col_start[t.col_schedule[rank]]; at < t.col_start[t.col_schedule[rank] + 1];
         ++at)
      tasks[static_cast<std::size_t>(t.col_tile[at])].insert(rank / kTaskTiles);
  for (int32_t rank = 0; rank < t.key_tiles(); ++rank)
    for (int32_t at = t.col_start[t.col_schedule[rank]]; at < t.col_start[t.col_schedule[rank] + 1];
         ++at) {
      const std::set<int32_t>& of_query = tasks[static_cast<std::size_t>(t.col_tile[at])];
      const auto before =
          static_cast<int32_t>(std::distance(of_query.begin(), of_query.find(rank / kTaskTiles)));
      EXPECT_EQ(t.col_turn[at], rank / kTaskTiles == *of_query.rbegin() ? ~before : before);
    }
}

// Tile tables hold exactly the pairs of attends(), once, in both directions, and every position has
// a slot.
inline void expect_exact_tiles(const AttentionPattern& pattern, int head, Lengths n, int edge) {
  const TileTables t = build_tile_tables(pattern, head, n, edge);
  const PairSet pairs = PairSet::defined(pattern, head, n);
  PairSet rows(n), columns(n);
  ASSERT_EQ(t.row_start.size(), static_cast<std::size_t>(t.query_tiles()) + 1);
  ASSERT_EQ(t.col_start.size(), static_cast<std::size_t>(t.key_tiles()) + 1);
  ASSERT_EQ(t.query_order.size() % edge + t.key_order.size() % edge, 0u);
  ASSERT_NO_THROW({
    add_pairs(map_of(t), edge, rows, columns);
    rows.check_equal(pairs, "tiles of queries", head);
    columns.check_equal(pairs, "tiles of keys", head);
    check_order(t.query_order.data(), std::ssize(t.query_order), n.queries, true, "query order");
    check_order(t.key_order.data(), std::ssize(t.key_order), n.keys, true, "key order");
  });
  EXPECT_EQ(t.pairs.needed, pairs.count());
  EXPECT_EQ(t.pairs.executed, static_cast<int64_t>(t.row_tile.size()) * edge * edge);
  expect_most_work_first(t.row_schedule, t.row_start, edge == kTile ? 12 : 1);
  expect_most_work_first(t.col_schedule, t.col_start, edge == kTile ? kTaskTiles : 1);
  expect_turns(t);
  std::set<std::vector<uint64_t>> distinct;
  for (std::size_t m = 0; m < t.masks.size(); m += edge)
    distinct.insert(std::vector<uint64_t>(t.masks.begin() + m, t.masks.begin() + m + edge));
  EXPECT_EQ(distinct.size() * edge, t.masks.size()) << "masks are stored once";
  EXPECT_FALSE(distinct.contains(std::vector<uint64_t>(edge, ~uint64_t{0} >> (64 - edge))))
      << "a full tile has mask -1";
  EXPECT_FALSE(distinct.contains(std::vector<uint64_t>(edge, 0))) << "an empty tile is not visited";
}

inline void expect_exact(const AttentionPattern& pattern, int head, Lengths n) {
  for (const int edge : {kTile, kSmallTile}) {
    SCOPED_TRACE(str("edge ", edge));
    expect_exact_tiles(pattern, head, n, edge);
  }
}

inline void expect_exact_runs(const AttentionPattern& pattern, int head, Lengths n) {
  ASSERT_NO_THROW(check_keys(pattern, head, n));
}

// attends() is what definitions.h says of the spec.
inline void expect_defined(const PatternSpec& spec, const AttentionPattern& pattern, int head,
                           Lengths n) {
  for (int64_t i = 0; i < n.queries; ++i)
    for (int64_t j = 0; j < n.keys; ++j)
      ASSERT_EQ(pattern.attends(head, i, j), definition::sees(spec, head, i, j)) << i << ", " << j;
}

// Kernels that know bands trust them: for n queries and keys, the band of each part is what it
// attends. Returns how many parts have one.
inline int expect_exact_bands(const AttentionPattern& pattern, int head, int64_t n) {
  std::vector<PatternPart> parts;
  pattern.parts(head, parts);
  if (parts.size() > 1) parts.push_back({&pattern, head});
  int bands = 0;
  for (const PatternPart& part : parts) {
    const Band band = part.pattern->band(part.head, n);
    if (!band) continue;
    ++bands;
    EXPECT_EQ(n % band.stride, 0) << part.pattern->name() << ", n " << n;
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        wrong += band.attends(i, j) != part.pattern->attends(part.head, i, j);
    EXPECT_EQ(wrong, 0) << "pairs in which the band of " << part.pattern->name() << " errs, n "
                        << n;
  }
  return bands;
}
}  // namespace weft
