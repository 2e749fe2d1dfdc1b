// SPDX-License-Identifier: MIT
// Patterns against their definitions: runs == attends(), pair counts == closed forms, errors == texts.
#include "src/attention_maps.h"

#include <gtest/gtest.h>

#include <random>

#include "src/config/config.h"
#include "src/config/names.h"
#include "tests/src/patterns/pattern_testing.h"

namespace weft {
namespace {

TEST(Pattern, RunsNameTheAttendedKeys) {
  std::mt19937 random(1);
  for (int repeat = 0; repeat < 400; ++repeat) {
    const RandomCase c = random_case(random);
    SCOPED_TRACE(c.text());
    expect_exact_runs(*c.pattern, c.head, c.n);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Pattern, HeadsOfAGroupSeeTheSameKeys) {
  std::mt19937 random(2);
  for (int repeat = 0; repeat < 100; ++repeat) {
    const RandomCase c = random_case(random);
    SCOPED_TRACE(c.text());
    const int groups = c.pattern->groups(c.heads);
    std::vector<int> heads_of(groups, 0);
    for (int h = 0; h < c.heads; ++h) {
      ASSERT_GE(c.pattern->group(h), 0);
      ASSERT_LT(c.pattern->group(h), groups);
      ++heads_of[c.pattern->group(h)];
      if (c.pattern->group(h) != c.pattern->group(c.head)) continue;
      for (std::int64_t i = 0; i < c.n; i += 13)
        for (std::int64_t j = 0; j < c.n; ++j)
          ASSERT_EQ(c.pattern->attends(h, i, j), c.pattern->attends(c.head, i, j)) << i << ", " << j;
    }
    for (const int count : heads_of) EXPECT_GT(count, 0);
  }
}

std::int64_t needed(const PatternSpec& spec, std::int64_t n) {
  return build_tile_tables(*make_pattern(spec, 4), 0, n).pairs.needed;
}

TEST(Pattern, PairsEqualTheClosedForms) {
  for (const std::int64_t n : {256, 3072, 12288}) {
    const std::int64_t s = 128, blocks = n / s, length = n / s;  // blocks of s, columns of n / s
    EXPECT_EQ(needed({"all"}, n), n * (n + 1) / 2);
    EXPECT_EQ(needed({"local", s}, n), s * n - s * (s - 1) / 2);
    EXPECT_EQ(needed({"strided", s}, n), n * (length + 1) / 2);
    for (const std::int64_t c : {8, 32})
      for (const std::int64_t num_verts : {1, 4})
        EXPECT_EQ(needed({"fixed", s, c, num_verts}, n), n * (s + 1) / 2 + n * c * (blocks - 1) / 2);
  }
}

TEST(Pattern, NeededPairsAreThoseOfTheTiles) {
  std::mt19937 random(4);
  for (int repeat = 0; repeat < 100; ++repeat) {
    const RandomCase c = random_case(random);
    const std::int64_t of_tiles = build_tile_tables(*c.pattern, c.head, c.n).pairs.needed;
    EXPECT_EQ(needed_pairs(*c.pattern, c.head, c.n), of_tiles) << c.text();
  }
}

TEST(Pattern, TilesHoldFewPairsThatNobodyNeeds) {
  const auto waste = [](const PatternSpec& spec, int head = 0, std::int64_t n = 12288) {
    return PackedMaps(*make_pattern(spec, 8), 8, n, 64).pairs(head).waste();
  };
  PatternSpec merged{"merged"};
  merged.of = {{"local", 128}, {"strided", 128}};
  EXPECT_LE(waste({"all"}), 1.02);
  EXPECT_LE(waste({"local", 128}), 2.0);
  EXPECT_LE(waste({"strided", 128}), 2.6);
  EXPECT_LE(waste({"fixed", 128, 32}), 1.1);
  EXPECT_LE(waste({"fixed", 128, 8}), 1.2);
  EXPECT_LE(waste(merged), 2.0);
  for (const int head : {0, 1, 2, 3}) EXPECT_LE(waste({"fixed", 128, 32, 4}, head), 1.1) << "head " << head;
  // One position more than whole tiles, one less, and columns of half a tile.
  EXPECT_LE(waste({"strided", 128}, 0, 128 * 64 + 1), 2.1);
  EXPECT_LE(waste({"strided", 128}, 0, 128 * 64 - 1), 2.1);
  EXPECT_LE(waste({"strided", 128}, 0, 128 * 63), 2.1);
  EXPECT_LE(waste({"strided", 128}, 0, 128 * 96 + 1), 2.3);
  EXPECT_LE(waste({"strided", 128}, 0, 128 * 32), 4.0);
}

TEST(Pattern, NamesTellPatternsApart) {
  EXPECT_EQ(make_pattern({"all"}, 2)->name(), "all");
  EXPECT_EQ(make_pattern({"local", 5}, 2)->name(), "local(stride 5)");
  EXPECT_EQ(make_pattern({"strided", 6}, 2)->name(), "strided(stride 6)");
  EXPECT_EQ(make_pattern({"fixed", 128, 32, 2}, 2)->name(), "fixed(stride 128, c 32, num_verts 2)");
  const auto name = [](const char* yaml) { return make_pattern(parse_pattern(yaml, "here"), 2)->name(); };
  EXPECT_EQ(name("{kind: local, stride: 5, causal: false}"), "local(stride 5, bidirectional)");
  EXPECT_EQ(name("{kind: all, causal: false, prefix: 7}"), "all(bidirectional) with prefix 7");
  EXPECT_EQ(name("{kind: all, documents: [4, 9], length: 12}"), "all with documents 4 9, length 12");
  EXPECT_EQ(
      name("{kind: heads, of: [{kind: all}, {kind: merged, of: [{kind: local, stride: 2}, {kind: strided, "
           "stride: 4}]}]}"),
      "heads(all, merged(local(stride 2), strided(stride 4)))");
  EXPECT_EQ(name("{kind: fixed, stride: 12, block: 2, vertsize: 3}"), "fixed(stride 12, c 6, num_verts 1)");
}

std::string error_of(const PatternSpec& spec, int heads) {
  try {
    make_pattern(spec, heads);
  } catch (const Error& error) { return error.what(); }
  return "no error";
}

std::string known_kinds() {
  std::vector<std::string> kinds;
  for (const PatternKind& entry : patterns()) kinds.emplace_back(entry.kind);
  return joined(kinds);
}

TEST(Pattern, ErrorsNameTheField) {
  EXPECT_EQ(error_of({"strid"}, 8),
            str("unknown attention pattern 'strid'; known: ", known_kinds(), "; did you mean 'strided'?"));
  EXPECT_EQ(error_of({"axial"}, 8), str("unknown attention pattern 'axial'; known: ", known_kinds()));
  EXPECT_EQ(error_of({"local", 0}, 8),
            "attention pattern 'local': stride must be between 1 and 1073741824, got 0");
  EXPECT_EQ(error_of({"strided", -3}, 8),
            "attention pattern 'strided': stride must be between 1 and 1073741824, got -3");
  EXPECT_EQ(error_of({"fixed", 128, 0}, 8),
            "attention pattern 'fixed': c must be between 1 and 1073741824, got 0");
  EXPECT_EQ(error_of({"fixed", 128, 32, 0}, 8),
            "attention pattern 'fixed': num_verts must be between 1 and 1073741824, got 0");
  EXPECT_EQ(error_of({"fixed", 128, 32, 5}, 10),
            "attention pattern 'fixed': num_verts sub-blocks of c positions must fit into a block of stride "
            "positions, "
            "got num_verts 5 * c 32 > stride 128; with this stride and c, num_verts can be at most 4");
  EXPECT_EQ(error_of({"fixed", 128, 200}, 8),
            "attention pattern 'fixed': num_verts sub-blocks of c positions must fit into a block of stride "
            "positions, "
            "got num_verts 1 * c 200 > stride 128; with this stride and c, c can be at most 128");
  EXPECT_EQ(error_of({"fixed", 128, 32, 3}, 8),
            "attention pattern 'fixed': heads must be a multiple of num_verts, got heads 8 and num_verts 3");
  EXPECT_NE(error_of({"all"}, 0), "no error");
  EXPECT_EQ(error_of({"fixed", 128, 128}, 8), "no error");
}

TEST(Names, TheNearestIsSuggested) {
  const std::vector<std::string> known = {"stride", "heads", "num_verts", "c"};
  EXPECT_EQ(nearest_name("strid", known), "stride");
  EXPECT_EQ(nearest_name("head", known), "heads");
  EXPECT_EQ(nearest_name("numverts", known), "num_verts");
  EXPECT_EQ(nearest_name("learning_rate", known), "");
  EXPECT_EQ(nearest_name("b", {"a", "c"}), "a");
  EXPECT_EQ(nearest_name("", {}), "");
}

}  // namespace
}  // namespace weft
