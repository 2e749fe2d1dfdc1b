// SPDX-License-Identifier: MIT
// longformer and bigbird against the rules of their papers, written down once more as plainly as
// possible.
#include "tests/src/patterns/pattern_testing.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace weft {
namespace {
using Matrix = std::vector<std::vector<char>>;  // [query][key]

// Rows and columns of `globals`, over a matrix of positions or of blocks.
void add_globals(Matrix& m, const std::vector<int64_t>& globals) {
  const auto n = static_cast<int64_t>(m.size());
  for (const int64_t g : globals)
    for (int64_t t = 0; t < n && g < n; ++t) m[g][t] = m[t][g] = 1;
}

void drop_later(Matrix& m) {
  for (std::size_t i = 0; i < m.size(); ++i)
    for (std::size_t j = i + 1; j < m.size(); ++j) m[i][j] = 0;
}

Matrix longformer(const PatternSpec& spec, int head, int64_t n) {
  const int64_t d = spec.dilation[head % spec.dilation.size()];
  Matrix m(n, std::vector<char>(n, 0));
  for (int64_t i = 0; i < n; ++i) {
    if (spec.causal)
      for (int64_t k = 0; k < spec.window; ++k)
        if (i - k * d >= 0) m[i][i - k * d] = 1;
    if (!spec.causal)
      for (int64_t k = -(spec.window / 2); k <= spec.window / 2; ++k)
        if (i + k * d >= 0 && i + k * d < n) m[i][i + k * d] = 1;
  }
  add_globals(m, spec.globals);
  if (spec.causal) drop_later(m);
  return m;
}

void expect_equal(const AttentionPattern& pattern, int head, const Matrix& m) {
  const auto n = static_cast<int64_t>(m.size());
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      ASSERT_EQ(pattern.attends(head, i, j), m[i][j] != 0) << "query " << i << ", key " << j;
}

TEST(Longformer, EqualsThePaper) {
  std::mt19937 random(11);
  for (int repeat = 0; repeat < 150; ++repeat) {
    const int64_t n = 1 + random() % 150;
    const PatternSpec spec = random_spec(random, "longformer", n, true);
    const auto pattern = make_pattern(spec, 5);
    for (int head = 0; head < 5; ++head) {
      SCOPED_TRACE(str(pattern->name(), ", head ", head, ", n ", n));
      expect_equal(*pattern, head, longformer(spec, head, n));
      expect_exact_runs(*pattern, head, n);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(Longformer, BothDirectionsHaveExactTiles) {
  std::mt19937 random(12);
  for (const char* kind : {"longformer", "bigbird"})
    for (int repeat = 0; repeat < 40; ++repeat) {
      const int64_t n = 1 + random() % 150;
      const auto pattern = make_pattern(random_spec(random, kind, n, true), 3);
      SCOPED_TRACE(str(pattern->name(), ", n ", n));
      expect_exact_runs(*pattern, repeat % 3, n);
      expect_exact(*pattern, repeat % 3, n);
      if (testing::Test::HasFailure()) return;
    }
}

TEST(Longformer, HeadsOfEqualDilationAreOneGroup) {
  const auto pattern = make_pattern({.kind = "longformer", .window = 4, .dilation = {1, 3, 1}}, 7);
  EXPECT_EQ(pattern->groups(7), 2);
  const std::vector<int> expected = {0, 1, 0, 0, 1, 0, 0};
  for (int head = 0; head < 7; ++head) EXPECT_EQ(pattern->group(head), expected[head]) << head;
  EXPECT_EQ(make_pattern({.kind = "longformer", .window = 4, .dilation = {1, 3}}, 1)->groups(1), 1);
}

TEST(Longformer, TilesAreWellUsed) {
  std::vector<int64_t> globals(8);
  std::iota(globals.begin(), globals.end(), 0);
  const std::vector<int64_t> spread = {5, 600, 1000, 1700, 2222, 3000, 3500, 4095};
  for (const bool causal : {true, false})
    for (const int64_t dilation : {1, 2, 4})
      for (const auto& list : {globals, spread}) {
        const PatternSpec spec{
            .kind = "longformer",
            .causal = causal,
            .window = 512,
            .dilation = {dilation},
            .globals = list,
        };
        EXPECT_LE(build_tile_tables(*make_pattern(spec, 1), 0, 4096).pairs.waste(), 1.6)
            << make_pattern(spec, 1)->name();
      }
}

// Whole blocks: window and globals as in the paper's appendix; what is left of a row are its random
// blocks.
Matrix bigbird_blocks(const PatternSpec& spec, int64_t blocks) {
  Matrix m(blocks, std::vector<char>(blocks, 0));
  for (int64_t I = 0; I < blocks; ++I)
    for (int64_t J = 0; J < blocks; ++J)
      m[I][J] = spec.causal ? I >= J && I - J < spec.window : std::abs(I - J) <= spec.window / 2;
  add_globals(m, spec.globals);
  return m;
}

TEST(BigBird, IsWindowGlobalsAndTheRightNumberOfRandomBlocks) {
  std::mt19937 random(13);
  for (int repeat = 0; repeat < 150; ++repeat) {
    const int64_t n = 1 + random() % 200;
    const PatternSpec spec = random_spec(random, "bigbird", n, true);
    const auto pattern = make_pattern(spec, 3);
    SCOPED_TRACE(str(pattern->name(), ", n ", n));
    const int64_t most = spec.causal ? n : std::min(n, spec.length);
    const int64_t blocks = ((spec.causal ? n : spec.length) - 1) / spec.block + 1;
    const Matrix always = bigbird_blocks(spec, blocks);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t I = i / spec.block;
      std::set<int64_t> drawn, left;
      for (int64_t j = 0; j < (spec.causal ? i + 1 : std::max(n, spec.length)); ++j) {
        const int64_t J = j / spec.block;
        const bool there = i < most && (spec.causal || j < spec.length);
        if (!there || always[I][J]) {
          ASSERT_EQ(pattern->attends(1, i, j), there) << i << ", " << j;
          continue;
        }
        left.insert(J);
        if (pattern->attends(1, i, j)) drawn.insert(J);
        ASSERT_EQ(pattern->attends(1, i, j), drawn.contains(J))
            << "blocks are whole: " << i << ", " << j;
      }
      const bool see_nothing = i >= most;
      ASSERT_EQ(drawn.size(), see_nothing ? 0 : std::min<std::size_t>(spec.random, left.size()))
          << "query " << i;
      for (int64_t j = i + 1; spec.causal && j < n; ++j) ASSERT_FALSE(pattern->attends(1, i, j));
    }
  }
}

std::vector<int64_t> drawn_blocks(const PatternSpec& spec, int head, int64_t query_block) {
  const auto pattern = make_pattern(spec, 8);
  std::vector<int64_t> blocks;
  for (int64_t J = 0; J < query_block; ++J)
    if (pattern->attends(head, query_block * spec.block, J * spec.block)) blocks.push_back(J);
  return blocks;
}

// Written down once: other numbers would be another model.
TEST(BigBird, DrawsAreTheSameOnEveryMachine) {
  PatternSpec spec{.kind = "bigbird", .block = 4, .window = 1, .random = 3, .seed = 42};
  EXPECT_EQ(drawn_blocks(spec, 0, 100), (std::vector<int64_t>{26, 36, 62}));
  EXPECT_EQ(drawn_blocks(spec, 1, 100), (std::vector<int64_t>{83, 84, 90}));
  EXPECT_EQ(drawn_blocks(spec, 0, 101), (std::vector<int64_t>{24, 39, 58}));
  spec.seed = 43;
  EXPECT_EQ(drawn_blocks(spec, 0, 100), (std::vector<int64_t>{21, 46, 74}));
}

TEST(BigBird, EveryBlockIsDrawnEquallyOften) {
  for (const bool causal : {true, false}) {
    const PatternSpec spec{
        .kind = "bigbird",
        .block = 1,
        .causal = causal,
        .length = causal ? 0 : 24,
        .window = 3,
        .globals = {0, 7},
        .random = 4,
        .seed = 5,
    };
    const auto pattern = make_pattern(spec, 2000);
    const int64_t query = causal ? 23 : 12;
    std::map<int64_t, int> count;
    for (int head = 0; head < 2000; ++head)
      for (int64_t j = 0; j < 24; ++j) count[j] += pattern->attends(head, query, j);
    int candidates = 0;
    for (const auto& [j, times] : count) candidates += times < 2000;
    EXPECT_EQ(candidates, 24 - 3 - 2);
    const double expected = 2000.0 * 4 / candidates, spread = std::sqrt(expected);
    for (const auto& [j, times] : count) {
      if (times == 2000) continue;
      EXPECT_NEAR(times, expected, 4.5 * spread) << "block " << j;
    }
  }
}

TEST(BigBird, HeadsDifferOnlyByTheirRandomBlocks) {
  EXPECT_EQ(make_pattern({.kind = "bigbird", .block = 4, .window = 2}, 6)->groups(6), 1);
  EXPECT_EQ(make_pattern({.kind = "bigbird", .block = 4, .window = 2, .random = 1}, 6)->groups(6),
            6);
}

TEST(BigBird, BlocksOfATileWasteOnlyTheDiagonal) {
  PatternSpec spec{
      .kind = "bigbird",
      .block = 64,
      .window = 3,
      .globals = {0, 1},
      .random = 3,
      .seed = 1,
  };
  EXPECT_LE(build_tile_tables(*make_pattern(spec, 2), 1, 4096).pairs.waste(), 1.1);
  spec.causal = false;
  spec.length = 4096;
  EXPECT_EQ(build_tile_tables(*make_pattern(spec, 2), 1, 4096).pairs.waste(), 1.0);
  spec.block = 16;
  EXPECT_EQ(build_tile_tables(*make_pattern(spec, 2), 1, 4096, kSmallTile).pairs.waste(), 1.0);
}

TEST(Longformer, ErrorsNameTheField) {
  const auto error = [](const PatternSpec& spec) {
    return error_of([&] { make_pattern(spec, 2); });
  };
  const std::string longformer = "attention pattern 'longformer': ",
                    bigbird = "attention pattern 'bigbird': ";
  EXPECT_EQ(error({.kind = "longformer"}),
            longformer + "window is required, a number from 1 to 1073741824");
  EXPECT_EQ(error({.kind = "longformer", .window = 4, .dilation = {}}),
            longformer + "dilation must list at least one number, got none; [1] is a plain window");
  EXPECT_EQ(error({.kind = "longformer", .window = 4, .dilation = {1, 0}}),
            longformer + "dilation must be between 1 and 1073741824, got 0");
  EXPECT_EQ(error({.kind = "longformer", .window = 4, .globals = {3, -1}}),
            longformer + "globals must be between 0 and 1073741823, got -1");
  EXPECT_EQ(error({.kind = "longformer", .window = 4, .globals = {3, 5, 3}}),
            longformer + "globals must be different, got 3 twice");
  EXPECT_EQ(error({.kind = "bigbird", .window = 3}),
            bigbird + "block is required, a number from 1 to 1073741824");
  EXPECT_EQ(error({.kind = "bigbird", .block = 4}),
            bigbird + "window is required, a number from 1 to 1073741824");
  EXPECT_EQ(error({.kind = "bigbird", .block = 4, .window = 1, .globals = {1 << 30}}),
            bigbird + "globals must be between 0 and 1073741823, got 1073741824");
  EXPECT_EQ(error({.kind = "bigbird", .block = 4, .window = 1, .random = -1}),
            bigbird + "random must be between 0 and 4096, got -1");
  EXPECT_EQ(error({.kind = "bigbird", .block = 4, .causal = false, .window = 1}),
            bigbird +
                "with causal: false, length is required, the number of positions from which random "
                "blocks are "
                "drawn, 1 to 1073741824, got 0");
}

TEST(Longformer, NamesHoldEveryNumber) {
  EXPECT_EQ(
      make_pattern({.kind = "longformer", .window = 4, .dilation = {1, 2}, .globals = {9, 0}}, 2)
          ->name(),
      "longformer(window 4, dilation [1, 2], globals [0, 9])");
  EXPECT_EQ(make_pattern({.kind = "longformer", .causal = false, .window = 4}, 2)->name(),
            "longformer(window 4, dilation [1], globals [], bidirectional)");
  EXPECT_EQ(
      make_pattern(
          {.kind = "bigbird", .block = 8, .window = 3, .globals = {0}, .random = 2, .seed = 7}, 2)
          ->name(),
      "bigbird(block 8, window 3, globals [0], random 2, seed 7)");
}

// The largest numbers that are taken do not overflow.
TEST(Longformer, LargeNumbersWork) {
  const int64_t most = kMaxPositions, last = most - 1;
  const auto wide = make_pattern(
      {.kind = "longformer", .window = most, .dilation = {most}, .globals = {last}}, 1);
  EXPECT_TRUE(wide->attends(0, last, 3));
  EXPECT_FALSE(wide->attends(0, last - 1, 3));
  expect_exact(*wide, 0, 65);
  PatternSpec spec{
      .kind = "bigbird",
      .block = 1,
      .causal = false,
      .length = most,
      .window = 3,
      .random = 5,
  };
  std::vector<KeyRun> runs;
  make_pattern(spec, 1)->key_runs(0, last, runs);
  int64_t keys = 0;
  for (const KeyRun& run : runs) keys += run.size();
  EXPECT_EQ(keys, 2 + 5);
  spec = {.kind = "bigbird", .block = most, .window = most, .random = 4096};
  expect_exact(*make_pattern(spec, 1), 0, 65);
}
}  // namespace
}  // namespace weft
