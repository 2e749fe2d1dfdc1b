// SPDX-License-Identifier: MIT
// convolution against loops over outputs and filter taps.
#include "src/config/config.h"
#include "src/config/read_config.h"
#include "tests/src/patterns/pattern_testing.h"
#include "tests/temp_dir.h"

#include <gtest/gtest.h>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace weft {
namespace {
// The padding by which a filter gives n / step outputs: the least that does, found by trying.
int64_t padding(int64_t n, int64_t filter, int64_t step) {
  for (int64_t pad = 0; pad < filter; ++pad) {
    int64_t outputs = 0;
    for (int64_t first = -pad; first + filter <= n + pad; first += step) ++outputs;
    if (outputs == n / step) return pad;
  }
  ADD_FAILURE() << "no padding for " << n << ", " << filter << ", " << step;
  return 0;
}

// All (query, key) pairs. Outputs are queries and see their taps; transposed, inputs see the
// outputs whose tap they are. Autoregressive: the key does not lie behind the query, an output
// lying where its stride begins.
PairSet convolution(const PatternSpec& spec, Lengths n) {
  const bool flat = spec.grid.size() == 1 || spec.grid[0] == 1;
  const int64_t s = spec.step, W = spec.grid.back(), H = flat ? 1 : spec.grid[0];
  const int64_t S = spec.filter.back(), R = flat ? 1 : spec.filter[0];
  const int64_t P = flat ? 1 : H / s, Q = W / s;
  const int64_t pad_r = flat ? 0 : padding(H, R, s), pad_s = padding(W, S, s);
  PairSet pairs(n);
  for (int64_t p = 0; p < P; ++p)
    for (int64_t q = 0; q < Q; ++q)
      for (int64_t r = 0; r < R; ++r)
        for (int64_t t = 0; t < S; ++t) {
          const int64_t h = p * s - pad_r + r, w = q * s - pad_s + t;
          if (h < 0 || h >= H || w < 0 || w >= W) continue;
          const int64_t input = h * W + w, output = p * Q + q, begins = p * s * Q * s + q * s;
          if (!spec.transposed && (!spec.causal || input <= begins))
            pairs.add(output, input, "convolution");
          if (spec.transposed && (!spec.causal || begins <= input))
            pairs.add(input, output, "convolution");
        }
  return pairs;
}

void expect_convolution(PatternSpec spec) {
  for (const bool transposed : {false, true}) {
    spec.transposed = transposed;
    const auto pattern = make_pattern(spec, 2);
    SCOPED_TRACE(pattern->name());
    const Lengths n = pattern->lengths();
    EXPECT_NO_THROW(
        PairSet::defined(*pattern, 1, n).check_equal(convolution(spec, n), "attends", 1));
    expect_exact_runs(*pattern, 1, pattern->lengths());
    expect_exact(*pattern, 1, pattern->lengths());
  }
}

TEST(Convolution, EqualsTheLoopsOverTaps) {
  std::mt19937 random(21);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int repeat = 0; repeat < 60; ++repeat) {
    PatternSpec spec{.kind = "convolution", .causal = pick(0, 1) == 1};
    spec.step = pick(1, 4);
    const auto filter = [&] { return spec.step == 1 ? 2 * pick(0, 4) + 1 : pick(1, 9); };
    spec.grid = {spec.step * pick(1, 24 / spec.step), spec.step * pick(1, 24 / spec.step)};
    spec.filter = {filter(), filter()};
    if (pick(0, 3) == 0) spec.grid = {spec.step * pick(1, 100)}, spec.filter = {filter() + 20};
    expect_convolution(spec);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Convolution, SizesOfTheReferencesExamples) {
  for (const auto& [size, filter, step] :
       {std::tuple<int64_t, int64_t, int64_t>{16, 15, 1}, {16, 15, 2}, {16, 8, 2}}) {
    expect_convolution(
        {.kind = "convolution", .grid = {size, size}, .filter = {filter, filter}, .step = step});
    expect_convolution(
        {.kind = "convolution", .grid = {size * size}, .filter = {filter}, .step = step});
  }
}

TEST(Convolution, LengthsAreThoseOfTheGrids) {
  PatternSpec spec{.kind = "convolution", .grid = {8, 12}, .filter = {4, 3}, .step = 2};
  EXPECT_EQ(make_pattern(spec, 1)->lengths(), Lengths(4 * 6, 8 * 12));
  spec.transposed = true;
  EXPECT_EQ(make_pattern(spec, 1)->lengths(), Lengths(8 * 12, 4 * 6));
  EXPECT_EQ(
      make_pattern({.kind = "convolution", .grid = {30}, .filter = {5}, .step = 3}, 1)->lengths(),
      Lengths(10, 30));
  EXPECT_THROW(build_tile_tables(*make_pattern(spec, 1), 0, {8 * 12 + 1, 4 * 6}), Error);
}

TEST(Convolution, OnlyWithoutAStepIsItCausal) {
  PatternSpec spec{.kind = "convolution", .grid = {8}, .filter = {3}};
  EXPECT_TRUE(make_pattern(spec, 1)->causal());
  spec.step = 2;
  EXPECT_FALSE(make_pattern(spec, 1)->causal());
  spec.step = 1;
  spec.causal = false;
  EXPECT_FALSE(make_pattern(spec, 1)->causal());
}

TEST(Convolution, AStepIsAtFaultWhereCausalIsSet) {
  const auto error = [](const std::string& more) {
    return error_of([&] {
      parse_config(
          "model: {context: 8, position_axes: [8], attention: {kind: convolution, "
          "grid: [8], filter: [3], " +
              more + "}}",
          "a.yaml");
    });
  };
  EXPECT_CONTAINS(error("step: 2, causal: true"),
                  "set causal: true and, of the convolution, step: 1 (inspect");
  EXPECT_CONTAINS(error("causal: false"), "; set causal: true (inspect");
  const PatternSpec inner{.kind = "convolution", .grid = {8}, .filter = {3}, .step = 2};
  Config config;
  config.model.context = 8, config.model.position_axes = {8};
  config.model.attention = {{.kind = "merged", .of = {{.kind = "local", .stride = 2}, inner}}};
  EXPECT_CONTAINS(error_of([&] { check_config(config); }), "of the convolution, step: 1 (inspect");
  EXPECT_EQ(error("step: 1, causal: true"), "");
}

// In rows of 64 slots a window of 15 x 15 would touch 15 rows of tiles of which 15 / 64 are used.
TEST(Convolution, PatchesOfTheGridFillTiles) {
  const PatternSpec spec{
      .kind = "convolution",
      .causal = false,
      .grid = {64, 64},
      .filter = {15, 15},
  };
  EXPECT_LE(build_tile_tables(*make_pattern(spec, 1), 0, 4096).pairs.waste(), 3.0);
  const PatternSpec wide{.kind = "convolution", .grid = {256, 256}, .filter = {31, 31}};
  EXPECT_LE(build_tile_tables(*make_pattern(wide, 1), 0, 65536).pairs.waste(), 2.0);
  const PatternSpec line{.kind = "convolution", .grid = {4096}, .filter = {513}};
  EXPECT_LE(build_tile_tables(*make_pattern(line, 1), 0, 4096).pairs.waste(), 1.3);
}

TEST(Convolution, ErrorsNameTheField) {
  const auto error = [](std::vector<int64_t> grid, std::vector<int64_t> filter, int64_t step) {
    return error_of([&] {
      make_pattern({.kind = "convolution", .grid = grid, .filter = filter, .step = step}, 1);
    });
  };
  const std::string kind = "attention pattern 'convolution': ";
  EXPECT_EQ(error({}, {3}, 1), kind + "grid is required, [width] or [height, width]");
  EXPECT_EQ(error({4, 4, 3}, {3}, 1),
            kind + "grid must be [width] or [height, width], got 3 numbers");
  EXPECT_EQ(error({4, 4}, {}, 1), kind + "filter is required, [width] or [height, width]");
  EXPECT_EQ(error({4, 4}, {3}, 1),
            kind + "grid and filter must have equally many numbers, got [4, 4] and [3]");
  EXPECT_EQ(error({4, 0}, {3, 3}, 1), kind + "grid must be between 1 and 1073741824, got 0");
  EXPECT_EQ(error({4, 4}, {3, -3}, 1), kind + "filter must be between 1 and 1073741824, got -3");
  EXPECT_EQ(error({4, 4}, {3, 3}, 0), kind + "step must be between 1 and 1073741824, got 0");
  EXPECT_EQ(error({4, 5}, {3, 3}, 2),
            kind + "step must divide the width of grid, got step 2 and width 5; 4 works");
  EXPECT_EQ(error({3, 8}, {3, 3}, 4),
            kind + "step must divide the height of grid, got step 4 and height 3");
  EXPECT_EQ(error({4, 4}, {3, 4}, 1),
            kind + "a filter of even size needs a step of at least 2, got width 4; 3 or 5 works");
  EXPECT_EQ(error({1 << 20, 1 << 20}, {3, 3}, 1),
            kind + "grid must have at most 1073741824 positions, got [1048576, 1048576]");
  EXPECT_EQ(error({1, 8}, {4, 3}, 1), "") << "a single row has no height to filter";
}

TEST(Convolution, NamesHoldEveryNumber) {
  PatternSpec spec{.kind = "convolution", .grid = {8, 12}, .filter = {4, 3}, .step = 2};
  EXPECT_EQ(make_pattern(spec, 1)->name(), "convolution(grid [8, 12], filter [4, 3], step 2)");
  spec.transposed = true;
  spec.causal = false;
  EXPECT_EQ(make_pattern(spec, 1)->name(),
            "convolution(grid [8, 12], filter [4, 3], step 2, transposed, bidirectional)");
}
}  // namespace
}  // namespace weft
