// SPDX-License-Identifier: MIT
// Patterns made of others (merged, heads) and modified ones (prefix, documents, length): their
// parts, their causality, their errors, and the arithmetic of runs under them.
#include "src/config/read_config.h"
#include "src/patterns/combine.h"
#include "tests/src/patterns/pattern_testing.h"
#include "tests/temp_dir.h"

#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace weft {
namespace {
std::unique_ptr<AttentionPattern> made(const std::string& yaml, int heads) {
  return make_pattern(parse_pattern(yaml, "here"), heads);
}

TEST(PatternParts, AreDisjointAndComplete) {
  std::mt19937 random(6);
  int with_parts = 0;
  for (int repeat = 0; repeat < 150 || (with_parts <= 10 && repeat < 1000); ++repeat) {
    const RandomCase c = random_case(random, true);
    SCOPED_TRACE(c.text());
    std::vector<PatternPart> parts;
    c.pattern->parts(c.head, parts);
    ASSERT_GE(parts.size(), 1u);
    ASSERT_LE(parts.size(), std::size_t{AttentionMaps::kMaxPasses / 2});
    with_parts += parts.size() > 1;
    for (int64_t i = 0; i < c.n; ++i)
      for (int64_t j = 0; j < c.n; ++j) {
        int seen = 0;
        for (const PatternPart& part : parts) seen += part.pattern->attends(part.head, i, j);
        ASSERT_EQ(seen, c.pattern->attends(c.head, i, j)) << i << ", " << j;
      }
    for (const PatternPart& part : parts) {
      SCOPED_TRACE(part.pattern->name());
      expect_exact_runs(*part.pattern, part.head, {c.n, 77});
      expect_exact(*part.pattern, part.head, c.n);
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(with_parts, 10);
}

TEST(PatternParts, CausalPatternsSeeNoLaterKeyAndOthersSaySo) {
  std::mt19937 random(7);
  int directions[2] = {0, 0};
  for (int repeat = 0; repeat < 300; ++repeat) {
    const RandomCase c = random_case(random, true);
    SCOPED_TRACE(c.text());
    ++directions[c.pattern->causal()];
    if (!c.pattern->causal()) continue;
    for (int head = 0; head < c.heads; ++head)
      for (int64_t i = 0; i < c.n; i += 3)
        for (int64_t j = i + 1; j < c.n; ++j) ASSERT_FALSE(c.pattern->attends(head, i, j));
  }
  EXPECT_GT(directions[0], 20);
  EXPECT_GT(directions[1], 20);
  EXPECT_TRUE(made("{kind: all, causal: false, prefix: 1}", 1)->causal());
  EXPECT_FALSE(made("{kind: all, causal: false, prefix: 2}", 1)->causal());
  EXPECT_FALSE(made("{kind: all, causal: false, documents: [3]}", 1)->causal());
  EXPECT_FALSE(made("{kind: heads, of: [{kind: all}, {kind: local, causal: false}]}", 2)->causal());
}

TEST(PatternParts, OfTheUnionKeepTheirOrders) {
  const auto pattern =
      made("{kind: merged, of: [{kind: local, stride: 8}, {kind: strided, stride: 8}]}", 2);
  const auto strided = make_pattern({"strided", 8}, 2);
  std::vector<PatternPart> parts;
  pattern->parts(1, parts);
  ASSERT_EQ(parts.size(), 2u);
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(parts[0].pattern->query_slot(parts[0].head, i, 100), i);
    EXPECT_EQ(parts[1].pattern->query_slot(parts[1].head, i, 100), strided->query_slot(0, i, 100));
    EXPECT_EQ(parts[1].pattern->key_slot(parts[1].head, i, 90), strided->key_slot(0, i, 90));
  }
}

// Three quarters of the heads share one table; heads of `fixed` are numbered inside their own list.
TEST(PatternHeads, GroupsShareTables) {
  const auto pattern = made(
      "{kind: heads, of: [{kind: fixed, stride: 8, c: 2, num_verts: 2}, {kind: local, stride: 4}, "
      "{kind: "
      "local, "
      "stride: 4}, {kind: local, stride: 4}]}",
      8);
  ASSERT_EQ(pattern->groups(8), 3);
  std::vector<int> groups;
  for (int head = 0; head < 8; ++head) groups.push_back(pattern->group(head));
  EXPECT_EQ(groups, (std::vector<int>{0, 1, 1, 1, 2, 1, 1, 1}));
  EXPECT_TRUE(pattern->attends(0, 15, 6));
  EXPECT_FALSE(pattern->attends(4, 15, 6));
  EXPECT_TRUE(pattern->attends(4, 15, 5));
}

TEST(PatternFixed, BlocksAreSummariesOfThatManyPositions) {
  const auto blocks = made("{kind: fixed, stride: 24, num_verts: 2, block: 4, vertsize: 2}", 4);
  const auto exact = made("{kind: fixed, stride: 24, num_verts: 2, c: 8}", 4);
  for (int head = 0; head < 4; ++head)
    for (int64_t i = 0; i < 100; ++i)
      for (int64_t j = 0; j < 100; ++j)
        ASSERT_EQ(blocks->attends(head, i, j), exact->attends(head, i, j))
            << head << ": " << i << ", " << j;
}

TEST(KeyRuns, LessOtherRuns) {
  std::mt19937 random(8);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const auto run = [&] {
    const int64_t begin = pick(0, 60);
    return KeyRun{begin, begin + pick(0, 60), pick(0, 1) ? 1 : pick(1, 9)};
  };
  const auto keys_of = [](const std::vector<KeyRun>& runs, std::size_t first) {
    std::multiset<int64_t> keys;
    for (std::size_t r = first; r < runs.size(); ++r)
      for (int64_t j = runs[r].begin; j < runs[r].end; j += runs[r].step) keys.insert(j);
    return keys;
  };
  for (int repeat = 0; repeat < 3000; ++repeat) {
    const KeyRun kept = run();
    const std::vector<KeyRun> taken = {run(), run()};
    std::vector<KeyRun> runs = {kept, run()};
    auto expected = keys_of(runs, 1);
    const auto all = keys_of(taken, 0);
    std::erase_if(expected, [&](int64_t j) { return all.contains(j); });
    subtract_runs(taken, 1, runs);
    ASSERT_EQ(runs[0], kept);
    ASSERT_EQ(keys_of(runs, 1), expected) << "repeat " << repeat;
    std::vector<KeyRun> clipped;
    clip_run(kept, 20, 70, clipped);
    auto inside = keys_of({kept}, 0);
    std::erase_if(inside, [](int64_t j) { return j < 20 || j >= 70; });
    ASSERT_EQ(keys_of(clipped, 0), inside) << "repeat " << repeat;
  }
}

std::string yaml_error(const std::string& yaml, int heads = 4) {
  try {
    made(yaml, heads);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(PatternErrors, NameTheFieldOfComposites) {
  EXPECT_CONTAINS(yaml_error("{kind: merged}"), "of is required in a pattern of kind merged");
  EXPECT_EQ(yaml_error("{kind: heads, of: [{kind: all}, {kind: all}]}", 1),
            "attention pattern 'heads': of must list 1 to 1 patterns, got 2");
  EXPECT_EQ(yaml_error("{kind: heads, of: [{kind: all}, {kind: fixed, num_verts: 4}]}"),
            "attention pattern 'heads': of[1]: attention pattern 'fixed': heads must be a multiple "
            "of num_verts, "
            "got heads 2 and num_verts 4");
  const std::string two = "{kind: merged, of: [{kind: local}, {kind: strided}]}";
  EXPECT_EQ(yaml_error("{kind: merged, of: [" + two + ", " + two + "]}"), "no error");
  EXPECT_EQ(yaml_error("{kind: merged, of: [" + two + ", " + two + ", {kind: all}]}"),
            "attention pattern 'merged': a union of at most 4 patterns, got 5, those of inner "
            "unions included");
  EXPECT_EQ(
      yaml_error("{kind: fixed, stride: 12, block: 5}"),
      "attention pattern 'fixed': stride must be a multiple of block, got stride 12 and block 5");
  EXPECT_EQ(yaml_error("{kind: fixed, stride: 12, block: 2, vertsize: 4}"),
            "attention pattern 'fixed': vertsize must divide the stride / block = 6 blocks of a "
            "stride, got "
            "vertsize 4");
  EXPECT_EQ(yaml_error("{kind: fixed, stride: 12, block: 2, vertsize: 3, num_verts: 4}"),
            "attention pattern 'fixed': num_verts sub-blocks of c positions must fit into a block "
            "of stride "
            "positions, got num_verts 4 * c 6 > stride 12; with this stride and c, num_verts can "
            "be at most 2");
}

TEST(PatternErrors, NameTheFieldOfModifiers) {
  EXPECT_EQ(yaml_error("{kind: local, stride: 4, prefix: 3}"),
            "attention pattern 'local': prefix lets queries see later keys, and local(stride 4) "
            "sees none; set "
            "causal: false, or leave prefix out");
  EXPECT_EQ(yaml_error("{kind: all, documents: [3, 3]}"),
            "attention pattern 'all': documents must ascend, got 3 after 3");
  PatternSpec spec{"all"};
  spec.length = -1;
  EXPECT_THROW(make_pattern(spec, 1), Error);
  spec = {"all"};
  spec.causal = false;
  spec.prefix = kMaxPositions + 1;
  EXPECT_THROW(make_pattern(spec, 1), Error);
}
}  // namespace
}  // namespace weft
