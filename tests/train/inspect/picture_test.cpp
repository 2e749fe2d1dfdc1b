// SPDX-License-Identifier: MIT
// Pictures of patterns against pictures drawn by hand (tests/golden/patterns) and the predicate.
#include "train/inspect/picture.h"

#include "src/config/read_config.h"
#include "src/patterns/pattern.h"
#include "tests/cases/random_case.h"
#include "tests/src/patterns/drawings.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <unistd.h>
#include <utility>

namespace weft {
namespace {
namespace fs = std::filesystem;

TEST(Picture, EqualsTheDrawingsMadeByHand) {
  for (const Drawing& d : drawings()) {
    SCOPED_TRACE(d.file);
    const auto n = static_cast<int64_t>(d.text.find('\n'));
    EXPECT_EQ(connectivity_text(*make_pattern(d.spec, d.heads), d.head, n), d.text);
  }
}

TEST(Picture, OfRandomPatternsIsThePredicate) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const SelftestCase c = make_selftest_case(seed, false);
    const Lengths n = c.lengths();
    for (int group = 0; group < c.pattern->groups(c.heads()); ++group) {
      const int head = c.first_head(group);
      const ConnectivityGrid grid = connectivity(*c.pattern, head, n, std::max(n.queries, n.keys));
      ASSERT_EQ(grid.rows, n.queries) << c.text();
      ASSERT_EQ(grid.columns, n.keys) << c.text();
      for (int64_t i = 0; i < n.queries; ++i)
        for (int64_t j = 0; j < n.keys; ++j)
          ASSERT_EQ(grid.share[i * n.keys + j] != 0, c.pattern->attends(head, i, j))
              << c.text() << ", head " << head << ", pair (" << i << ", " << j << ")";
    }
  }
}

// One position's view in rows of the stride: the upper panels of Figure 3 of arXiv 1904.10509.
TEST(Picture, ReceptiveFieldsEqualTheDrawingsMadeByHand) {
  const auto field = [](const PatternSpec& spec, int64_t position) {
    return field_text(*make_pattern(spec, 1), {0, position, 36, FieldLayout::in_rows(36, 6)});
  };
  EXPECT_EQ(field({"all"}, 21),
            "######\n"
            "######\n"
            "######\n"
            "###O..\n"
            "......\n"
            "......\n");
  EXPECT_EQ(field({"local", 6}, 21),
            "......\n"
            "......\n"
            "....##\n"
            "###O..\n"
            "......\n"
            "......\n");
  EXPECT_EQ(field({"strided", 6}, 21),
            "...#..\n"
            "...#..\n"
            "...#..\n"
            "...O..\n"
            "......\n"
            "......\n");
  EXPECT_EQ(field({"fixed", 6, 1}, 21),
            ".....#\n"
            ".....#\n"
            ".....#\n"
            "###O..\n"
            "......\n"
            "......\n");
}

// 2 x 3 pixels of two channels: positions 0 and 1 are the channels of the first pixel.
TEST(Picture, ReceptiveFieldsOnImages) {
  const auto pattern = make_pattern({"local", 4}, 1);
  EXPECT_EQ(field_text(*pattern, {0, 7, 12, FieldLayout::image(12, {2, 3, 2})}),
            "..# ..#\n"
            "#.. O..\n");
  EXPECT_EQ(field_text(*pattern, {0, 7, 10, FieldLayout::image(10, {2, 3, 2})}),
            "..# ..#\n"
            "#.  O.\n");
  EXPECT_EQ(field_text(*pattern, {0, 5, 8, FieldLayout::image(8, {2, 4})}), "..##\n#O..\n");
  EXPECT_EQ(field_text(*pattern, {0, 5, 8, FieldLayout::image(8, {2, 4})}, 2), "O=\n");
}

TEST(Picture, QueriesAndKeysOfDifferentNumber) {
  const auto pattern =
      make_pattern(parse_pattern("{kind: local, stride: 2, causal: false}", "test"), 1);
  EXPECT_EQ(connectivity_text(*pattern, 0, {3, 5}), "##...\n###..\n.###.\n");
  EXPECT_EQ(connectivity_text(*pattern, 0, {5, 3}), "##.\n###\n.##\n..#\n...\n");
  EXPECT_EQ(connectivity_text(*pattern, 0, {4, 8}, 4), "#-..\n-#-.\n");
  EXPECT_EQ(field_text(*pattern, {0, 3, {4, 6}, FieldLayout::in_rows(6, 3)}), "..#\n##.\n");
}

TEST(Picture, GridHoldsTheShareOfAttendedPairs) {
  for (const PatternSpec& spec :
       {PatternSpec{"all"}, {"local", 9}, {"strided", 10}, {"fixed", 12, 3, 2}})
    for (const auto& [n, max_cells] : {std::pair<int, int>{100, 7}, {64, 64}, {65, 64}, {5, 64}}) {
      SCOPED_TRACE(str(spec.kind, ", n ", n, ", cells ", max_cells));
      const auto pattern = make_pattern(spec, 2);
      const ConnectivityGrid grid = connectivity(*pattern, 1, n, max_cells);
      ASSERT_EQ(grid.rows, std::min(n, max_cells));
      ASSERT_EQ(grid.columns, grid.rows);
      const auto start = [&](int64_t cell) { return cell * n / grid.rows; };
      for (int64_t r = 0; r < grid.rows; ++r)
        for (int64_t c = 0; c < grid.rows; ++c) {
          double attended = 0, pairs = 0;
          for (int64_t i = start(r); i < start(r + 1); ++i)
            for (int64_t j = start(c); j < start(c + 1); ++j, ++pairs)
              attended += pattern->attends(1, i, j);
          ASSERT_DOUBLE_EQ(grid.share[r * grid.rows + c], attended / pairs) << r << ", " << c;
        }
    }
}

TEST(Picture, LongSequencesShowShares) {
  EXPECT_EQ(connectivity_text(*make_pattern({"all"}, 1), 0, 400, 4), "=...\n#=..\n##=.\n###=\n");
  EXPECT_EQ(connectivity_text(*make_pattern({"strided", 100}, 1), 0, 400, 4),
            ":...\n::..\n:::.\n::::\n");
}

// The colours of the middles of cells: left panel one square a position, right panel one square a
// pair.
fs::path temporary(const std::string& name) {
  return fs::temp_directory_path() / str("weft_picture_", ::getpid(), "_", name);
}

std::string contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

TEST(Picture, MaskFileIsAnArrayOfBytes) {
  const fs::path path = temporary("mask.npy");
  const auto pattern = make_pattern({"fixed", 6, 2, 2}, 2);
  write_mask_npy(path.string(), *pattern, 1, 14);
  const std::string file = contents(path);
  fs::remove(path);
  ASSERT_EQ(file.size(), 128u + 14 * 14);
  EXPECT_EQ(file.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  EXPECT_TRUE(
      file.substr(10).starts_with("{'descr': '|b1', 'fortran_order': False, 'shape': (14, 14), }"));
  EXPECT_EQ(file[127], '\n');
  for (int i = 0; i < 14; ++i)
    for (int j = 0; j < 14; ++j)
      EXPECT_EQ(file[128 + i * 14 + j], pattern->attends(1, i, j) ? 1 : 0);
}

TEST(Picture, FilesThatCannotBeWrittenLeaveNothing) {
  const auto pattern = make_pattern({"all"}, 1);
  EXPECT_THROW(write_mask_npy("/nowhere/mask.npy", *pattern, 0, 4), Error);
  const fs::path path = temporary("long.npy");
  EXPECT_THROW(write_mask_npy(path.string(), *pattern, 0, kMaxMaskLength + 1), Error);
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace weft
