// SPDX-License-Identifier: MIT
// Tile tables hold exactly the attended pairs, in both directions, for the known patterns and for
// one made to be awkward: empty rows, gaps, and orders of its own.
#include "src/attention_maps.h"
#include "tests/src/patterns/pattern_testing.h"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
// Every third query sees nothing; the others see the keys j <= i with j % 4 != 1, so that some keys
// are never seen. Queries lie backwards with a gap after each; keys lie in steps of three.
class Awkward : public AttentionPattern {
 public:
  std::string name() const override { return "awkward"; }

  bool attends(int, int64_t i, int64_t j) const override {
    return i % 3 != 0 && j <= i && j % 4 != 1;
  }

  void key_runs(int, int64_t i, std::vector<KeyRun>& runs) const override {
    if (i % 3 == 0) return;
    runs.push_back({0, 1});
    runs.push_back({i + 1000, i + 1000});  // an empty run may lie anywhere
    for (int64_t j = 2; j <= i; j += 4) runs.push_back({j, std::min(j + 3, i + 1)});
  }

  int64_t query_slot(int, int64_t i, int64_t n) const override { return 2 * (n - 1 - i); }

  int64_t key_slot(int, int64_t j, int64_t) const override { return 3 * j; }
};

// Every other key, in the order of the positions: runs in steps over slots that follow each other.
class Alternate : public AttentionPattern {
 public:
  std::string name() const override { return "alternate"; }

  bool attends(int, int64_t i, int64_t j) const override { return j <= i && (i - j) % 2 == 0; }

  void key_runs(int, int64_t i, std::vector<KeyRun>& runs) const override {
    runs.push_back({i % 2, i + 1, 2});
  }
};

TEST(PatternTiles, HoldTheAttendedPairs) {
  std::mt19937 random(3);
  for (int repeat = 0; repeat < 120; ++repeat) {
    const RandomCase c = random_case(random, true);
    SCOPED_TRACE(c.text());
    const Lengths most = c.pattern->lengths();
    const int64_t other = std::uniform_int_distribution<int64_t>(1, 200)(random);
    expect_exact(*c.pattern, c.head, c.n);
    expect_exact(*c.pattern, c.head, {most.queries ? std::min(most.queries, other) : other, c.n});
    expect_exact(*c.pattern, c.head, {c.n, most.keys ? std::min(most.keys, other) : other});
    if (testing::Test::HasFailure()) return;
  }
}

TEST(PatternTiles, AllowEmptyRowsGapsAndAnyOrder) {
  for (const int64_t n : {1, 2, 33, 64, 130}) {
    SCOPED_TRACE(n);
    expect_exact(Awkward(), 0, n);
    expect_exact(Alternate(), 0, n);
  }
}

TEST(PatternTiles, AllOf192IsSixTiles) {
  const TileTables t = build_tile_tables(*make_pattern({"all"}, 1), 0, 192);
  EXPECT_EQ(t.row_start, (std::vector<int32_t>{0, 1, 3, 6}));
  EXPECT_EQ(t.row_tile, (std::vector<int32_t>{0, 0, 1, 0, 1, 2}));
  EXPECT_EQ(t.row_mask, (std::vector<int32_t>{0, -1, 0, -1, -1, 0}));
  EXPECT_EQ(t.col_start, (std::vector<int32_t>{0, 3, 5, 6}));
  EXPECT_EQ(t.col_tile, (std::vector<int32_t>{0, 1, 2, 1, 2, 2}));
  EXPECT_EQ(t.col_mask, (std::vector<int32_t>{0, -1, -1, 0, -1, 0}));
  EXPECT_EQ(t.row_schedule, (std::vector<int32_t>{2, 1, 0}));
  EXPECT_EQ(t.col_schedule, (std::vector<int32_t>{0, 1, 2}));
  ASSERT_EQ(t.masks.size(), std::size_t{kTile});
  EXPECT_EQ(t.masks[0], 1u);
  EXPECT_EQ(t.masks[2], 7u);
  EXPECT_EQ(t.masks_transposed[0], ~uint64_t{0});
  EXPECT_EQ(t.masks_transposed[63], uint64_t{1} << 63);
}

// The tiles of a block of 128 are 2 of queries and, besides its summary, 2 of keys, which its own
// queries alone see.
TEST(PatternTiles, TilesOfABlockFollowEachOther) {
  const TileTables t = build_tile_tables(*make_pattern({"fixed", 128, 32}, 1), 0, 128 * 24);
  const int32_t summaries = 24 * 32 / kTile;
  std::vector<int32_t> rows = t.row_schedule, columns = t.col_schedule;
  for (int32_t rank = 0; rank < 48; ++rank) EXPECT_EQ(rows[rank], 47 - rank);
  for (std::size_t rank = 0; rank < columns.size(); rank += 2) {
    const int32_t first = std::min(columns[rank], columns[rank + 1]);
    EXPECT_EQ(first % 2, 0);
    EXPECT_EQ(std::max(columns[rank], columns[rank + 1]), first + 1);
    EXPECT_EQ(rank < static_cast<std::size_t>(summaries), first < summaries);  // the longest
  }
  std::sort(columns.begin(), columns.end());
  for (std::size_t rank = 0; rank < columns.size(); ++rank) EXPECT_EQ(columns[rank], rank);
}

// 128 tiles of queries in runs of 12: the last run has 8, with the longest lists of all, and comes
// first.
TEST(PatternTiles, AShortLastRunCountsAsAWholeOne) {
  const TileTables t = build_tile_tables(*make_pattern({"fixed", 128, 32}, 1), 0, 128 * 64);
  ASSERT_EQ(t.row_schedule.size(), 128u);
  for (int32_t rank = 0; rank < 128; ++rank) EXPECT_EQ(t.row_schedule[rank], 127 - rank);
}

// Of `blocks` blocks that take tasks of four tiles back and forth, as kernels do
// (kernels/attention/hopper/stream.cuh): the work of the busiest, relative to the mean.
double busiest(const TileTables& t, int heads, int blocks) {
  std::vector<double> work(static_cast<std::size_t>(blocks), 0.0);
  int64_t task = 0;
  for (int32_t rank = 0; rank < t.query_tiles(); rank += 4) {
    double tiles = 0;
    for (int32_t i = rank; i < std::min(rank + 4, t.query_tiles()); ++i)
      tiles += t.row_start[t.row_schedule[i] + 1] - t.row_start[t.row_schedule[i]];
    for (int head = 0; head < heads; ++head, ++task) {
      const int64_t round = task / blocks, at = task % blocks;
      work[static_cast<std::size_t>(round % 2 ? blocks - 1 - at : at)] += tiles;
    }
  }
  const double all = static_cast<double>(t.row_tile.size()) * heads;
  return *std::max_element(work.begin(), work.end()) * blocks / all;
}

// Also where the tiles are no multiple of the runs in which they are dealt: the last run, which has
// the longest lists, is not dealt among the shorter ones.
TEST(PatternTiles, NoBlockGetsMuchMoreThanOthers) {
  const auto most = [](int64_t stride, int64_t n, int heads) {
    return busiest(build_tile_tables(*make_pattern({"fixed", stride, 32}, 1), 0, n), heads, 132);
  };
  EXPECT_LT(most(128, 8192, 32), 1.02);
  EXPECT_LT(most(128, 12288, 32), 1.02);
  EXPECT_LT(most(128, 16384, 32), 1.02);
  EXPECT_LT(most(256, 65536, 8), 1.02);
}

TEST(PatternTiles, LargeTilesThatAreFullEnoughAreTaken) {
  const auto edge = [](const PatternSpec& spec, int64_t n, int64_t head_size = 64) {
    return build_best_tables(*make_pattern(spec, 1), 0, n, head_size).edge;
  };
  EXPECT_EQ(edge({"all"}, 1000), kTile);
  EXPECT_EQ(edge({"local", 128}, 12288), kTile);
  EXPECT_EQ(edge({"strided", 128}, 12288), kTile);
  EXPECT_EQ(edge({"fixed", 128, 8}, 12288), kTile);
  EXPECT_EQ(edge({"strided", 128}, 12288, 128), kTile);
}

// Long sequences: time and memory grow with the tiles, for nothing asks all pairs.
TEST(PatternTiles, AMillionPositions) {
  const int64_t n = 1 << 20, l = 1024;
  const TileTables strided = build_best_tables(*make_pattern({"strided", l}, 1), 0, n, 64);
  EXPECT_EQ(strided.pairs.needed, n * (n / l + 1) / 2);
  EXPECT_LE(strided.pairs.waste(), 1.1);
  EXPECT_LE(strided.row_tile.size(), std::size_t{1024 * 17 * 16 / 2});
  EXPECT_LE(strided.masks.size(), std::size_t{kTile});
  const int64_t m = 1 << 18;
  const TileTables fixed = build_best_tables(*make_pattern({"fixed", l, 32}, 1), 0, m, 64);
  EXPECT_EQ(fixed.pairs.needed, m * (l + 1) / 2 + m * 32 * (m / l - 1) / 2);
  EXPECT_LE(fixed.pairs.waste(), 1.02);
}

// A pattern that breaks a rule of the contract.
class Broken : public Awkward {
 public:
  explicit Broken(int how)
      : how_(how) {}

  void key_runs(int, int64_t i, std::vector<KeyRun>& runs) const override {
    runs.push_back({how_ == 0 ? -1 : 0, i + 1, how_ == 1 ? 0 : 1});
  }

  int64_t key_slot(int, int64_t j, int64_t) const override {
    return how_ == 2 ? j / 2 : how_ == 3 ? j - 1 : j;
  }

 private:
  int how_;
};

std::string awkward_error(int how, int64_t n = 8) {
  try {
    build_tile_tables(Broken(how), 0, n);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(PatternTiles, MistakesOfAPatternAreNamed) {
  EXPECT_TRUE(awkward_error(0).starts_with("awkward: query 7 names keys -1 .. 7 in steps of 1"))
      << awkward_error(0);
  EXPECT_TRUE(awkward_error(1).starts_with("awkward: query 7 names keys 0 .. 7 in steps of 0"))
      << awkward_error(1);
  EXPECT_TRUE(awkward_error(2).starts_with("awkward, keys: positions 0 and 1 share slot 0"))
      << awkward_error(2);
  EXPECT_TRUE(awkward_error(3).starts_with("awkward, keys: position 0 has the negative slot -1"))
      << awkward_error(3);
  EXPECT_TRUE(awkward_error(4, 0).starts_with("a sequence has 1 to 1073741824 positions, got 0"))
      << awkward_error(4, 0);
  EXPECT_EQ(awkward_error(4), "no error");
}

// What a kernel reads equals the tables of the head's group.
TEST(PatternTiles, DeviceMapsHoldTheTablesOfEachGroup) {
  const auto device = make_device("cpu");
  const auto pattern = make_pattern({"fixed", 24, 5, 4}, 8);
  const int64_t n = 200;
  const DeviceMaps on_device(*device, *pattern, 8, n, 64);
  const AttentionMaps& maps = on_device.maps();
  ASSERT_EQ(maps.groups, 4);
  ASSERT_EQ(maps.passes, 1);
  const AttentionPass& pass = maps.pass[0];
  for (int head = 0; head < 8; ++head) {
    SCOPED_TRACE(head);
    ASSERT_EQ(maps.group_of_head[head], head % 4);
    const TileMap& map = pass.maps[head % 4];
    EXPECT_FALSE(map.accumulate);
    const TileTables t = build_best_tables(*pattern, head, n, 64);
    EXPECT_EQ(pass.edge, t.edge);
    EXPECT_EQ(map.query_tiles, t.query_tiles());
    EXPECT_EQ(map.key_tiles, t.key_tiles());
    EXPECT_LE(map.query_tiles, pass.query_tiles);
    EXPECT_LE(map.key_tiles, pass.key_tiles);
    const auto expect_copied = [&](const auto* copy, const auto& original) {
      EXPECT_TRUE(std::equal(original.begin(), original.end(), copy));
    };
    expect_copied(map.query_order, t.query_order);
    expect_copied(map.key_order, t.key_order);
    expect_copied(map.row_start, t.row_start);
    expect_copied(map.row_tile, t.row_tile);
    expect_copied(map.row_mask, t.row_mask);
    expect_copied(map.col_start, t.col_start);
    expect_copied(map.col_tile, t.col_tile);
    expect_copied(map.col_mask, t.col_mask);
    expect_copied(map.row_schedule, t.row_schedule);
    expect_copied(map.col_schedule, t.col_schedule);
    expect_copied(map.col_turn, t.col_turn);
    expect_copied(map.masks, t.masks);
    expect_copied(map.masks_transposed, t.masks_transposed);
    EXPECT_EQ(on_device.pairs(head).needed, t.pairs.needed);
    EXPECT_EQ(on_device.pairs(head).executed, t.pairs.executed);
  }
  EXPECT_EQ(on_device.bytes(), PackedMaps(*pattern, 8, n, 64).bytes());
}

// Slots [first, first + run) of an order: positions that follow each other, empty slots only past
// the end; or none at all.
bool follows(const int32_t* order, int run, int64_t n) {
  for (int i = 0; i < run; ++i) {
    const int64_t expected = order[0] < 0 || order[0] + i >= n ? -1 : order[0] + i;
    if (order[i] != expected) return false;
  }
  return true;
}

bool all_follow(const std::vector<int32_t>& order, int run, int64_t n) {
  for (std::size_t first = 0; first < order.size(); first += static_cast<std::size_t>(run))
    if (!follows(order.data() + first, run, n)) return false;
  return true;
}

// What a pass says of its orders is true, and the most that is.
TEST(PatternTiles, RunsOfSlotsAreTheLongestThereAre) {
  const PatternSpec fixed_8{.kind = "fixed", .stride = 128, .c = 8},
      fixed_32{.kind = "fixed", .stride = 128, .c = 32},
      fixed_12{.kind = "fixed", .stride = 128, .c = 12};
  const auto pass_of = [](const PackedMaps& maps) {
    std::vector<char> image(maps.bytes());
    return maps.write(image.data(), image.data()).pass[0];
  };
  for (const PatternSpec& spec : {PatternSpec{"all"}, PatternSpec{"local", 96},
                                  PatternSpec{"strided", 128}, fixed_8, fixed_12, fixed_32})
    for (const Lengths n :
         {Lengths(1), Lengths(100), Lengths(1024), Lengths(1000), Lengths(300, 1031)}) {
      const auto pattern = make_pattern(spec, 1);
      const PackedMaps packed(*pattern, 1, n, 64, kTile);
      const AttentionPass pass = pass_of(packed);
      const TileTables& t = *packed.tables(0, 0);
      SCOPED_TRACE(str(pattern->name(), ", ", n.queries, " queries, ", n.keys, " keys"));
      const auto expect_longest = [](const std::vector<int32_t>& order, int run, int64_t length) {
        EXPECT_TRUE(run == 0 || all_follow(order, run, length));
        EXPECT_FALSE(run < kTile && all_follow(order, run == 0 ? 8 : 2 * run, length));
      };
      expect_longest(t.query_order, pass.query_run, n.queries);
      expect_longest(t.key_order, pass.key_run, n.keys);
    }
  const auto key_run = [&](const PatternSpec& spec) {
    return pass_of(PackedMaps(*make_pattern(spec, 1), 1, 1024, 64, kTile)).key_run;
  };
  EXPECT_EQ(key_run(PatternSpec{"all"}), 64);
  EXPECT_EQ(key_run(fixed_32), 32);
  EXPECT_EQ(key_run(fixed_8), 8);
  EXPECT_EQ(key_run(fixed_12), 0);
  EXPECT_EQ(key_run(PatternSpec{"strided", 128}), 0);
}

// Everything that a kernel reads of the passes of a head, for random patterns: runs of slots, grid
// sizes, the band, which pass begins and which go on, and that together they are the pattern.
TEST(PatternTiles, PassesOfRandomPatternsAreWhatTheyClaim) {
  std::mt19937 random(14);
  int bands = 0;
  for (int repeat = 0; repeat < 150; ++repeat) {
    const RandomCase c = random_case(random, true);
    SCOPED_TRACE(c.text());
    const PackedMaps packed(*c.pattern, c.heads, c.n, 64);
    std::vector<char> image(packed.bytes());
    const AttentionMaps maps = packed.write(image.data(), image.data());
    const int group = c.pattern->group(c.head);
    ASSERT_EQ(maps.group_of_head[c.head], group);
    PairSet seen(c.n);
    bool begins = true;
    for (int p = 0; p < maps.passes; ++p) {
      const AttentionPass& pass = maps.pass[p];
      const TileMap& map = pass.maps[group];
      const TileTables* t = packed.tables(p, group);
      ASSERT_EQ(map.query_tiles, t ? t->query_tiles() : 0);
      ASSERT_TRUE(t || !pass.band) << "a band is that of every group";
      if (!t) continue;
      EXPECT_EQ(map.accumulate, !begins);
      begins = false;
      EXPECT_TRUE(pass.query_run == 0 || all_follow(t->query_order, pass.query_run, c.n));
      EXPECT_TRUE(pass.key_run == 0 || all_follow(t->key_order, pass.key_run, c.n));
      EXPECT_EQ(pass.edge, t->edge);
      EXPECT_GE(pass.query_tiles, map.query_tiles);
      EXPECT_GE(pass.key_tiles, map.key_tiles);
      EXPECT_GE(pass.visited, static_cast<int64_t>(t->row_tile.size()));
      PairSet pairs(c.n);
      TileLists::of_queries(map).for_each_pair(t->edge, [&](int64_t i, int64_t j) {
        pairs.add(i, j, "pass");
        seen.add(i, j, "passes");
      });
      if (!pass.band) continue;
      ++bands;
      EXPECT_EQ(pass.accumulate, map.accumulate);
      for (int64_t i = 0; i < c.n; ++i)
        for (int64_t j = 0; j < c.n; ++j)
          ASSERT_EQ(pass.band.attends(i, j), pairs.has(i, j)) << i << ", " << j;
    }
    seen.check_equal(PairSet::defined(*c.pattern, c.head, c.n), "passes", c.head);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(bands, 3);
}

PatternSpec union_of(std::vector<PatternSpec> of) {
  PatternSpec spec{.kind = "merged"};
  spec.of = std::move(of);
  return spec;
}

// What a pass says of its band is the pattern, and the parts of a union are disjoint.
TEST(PatternTiles, BandsAreWhatThePatternAttends) {
  const PatternSpec local{"local", 12}, wide{"local", 100}, strided{"strided", 12},
      coarse{"strided", 30};
  for (const PatternSpec& spec :
       {local, wide, strided, union_of({local, strided}), union_of({wide, strided}),
        union_of({local, coarse}), union_of({PatternSpec{"local", 7}, wide})})
    for (const int64_t n : {1, 12, 60, 120, 300}) {
      const auto pattern = make_pattern(spec, 3);
      const PackedMaps packed(*pattern, 3, n, 64);
      std::vector<char> image(packed.bytes());
      const AttentionMaps maps = packed.write(image.data(), image.data());
      SCOPED_TRACE(str(pattern->name(), ", n ", n));
      if (std::any_of(maps.pass, maps.pass + maps.passes, [](const auto& p) { return !p.band; })) {
        EXPECT_NE(n % 60, 0);  // no band only where the columns differ
        continue;
      }
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j) {
          const auto seen = std::count_if(maps.pass, maps.pass + maps.passes,
                                          [&](const auto& p) { return p.band.attends(i, j); });
          ASSERT_EQ(seen, pattern->attends(0, i, j)) << i << " " << j;
        }
      for (int p = 0; p < maps.passes; ++p) EXPECT_EQ(maps.pass[p].accumulate, p > 0);
    }
}

TEST(PatternTiles, NoBandWherePatternsAreNone) {
  PatternSpec both_ways{"local", 12}, taken_in_turn{.kind = "heads"};
  both_ways.causal = false;
  taken_in_turn.of = {{"local", 12}, {"strided", 12}};
  const auto band = [](const PatternSpec& spec, Lengths n) {
    const PackedMaps packed(*make_pattern(spec, 2), 2, n, 64);
    std::vector<char> image(packed.bytes());
    return packed.write(image.data(), image.data()).pass[0].band;
  };
  EXPECT_TRUE(band({"local", 12}, 120));
  EXPECT_FALSE(band({"local", 12}, Lengths(120, 132)));
  EXPECT_FALSE(band(both_ways, 120));
  EXPECT_FALSE(band({"strided", 12}, 121));
  EXPECT_FALSE(band({"all"}, 120));
  EXPECT_FALSE(band({.kind = "fixed", .stride = 12, .c = 4}, 120));
  EXPECT_FALSE(band(taken_in_turn, 120));
}

TEST(PatternTiles, MapsAreSharedByPatternAndLength) {
  const auto device = make_device("cpu");
  MapCache cache(*device, 2, 64);
  const DeviceMaps& first = cache.get(*make_pattern({"local", 4}, 2), 65);
  EXPECT_EQ(&cache.get(*make_pattern({"local", 4}, 2), 65), &first);
  EXPECT_NE(&cache.get(*make_pattern({"local", 5}, 2), 65), &first);
  EXPECT_NE(&cache.get(*make_pattern({"local", 4}, 2), 64), &first);
}
}  // namespace
}  // namespace weft
