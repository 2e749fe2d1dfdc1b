// SPDX-License-Identifier: MIT
// Block layouts: the definition, from memory and from files.
#include "src/patterns/more/layout.h"

#include "src/files/hdf5.h"
#include "src/files/npy.h"
#include "tests/src/patterns/pattern_testing.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace weft {
namespace {
BlockLayout random_layout(std::mt19937& random, int64_t heads) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  BlockLayout layout;
  layout.heads = pick(0, 1) ? heads : 1;
  layout.block = int64_t{8} << pick(0, 3);
  layout.query_blocks = pick(1, 128 / layout.block);
  layout.key_blocks = pick(1, 128 / layout.block);
  layout.causal = pick(0, 1) == 1;
  layout.active.resize(layout.heads * layout.query_blocks * layout.key_blocks);
  const int64_t share = pick(0, 4);
  for (auto& block : layout.active) block = pick(0, 3) < share;
  if (pick(0, 2) == 0)
    layout.keep = [seed = pick(1, 9)](int head, int64_t i, int64_t j) {
      return (i * 7 + j * seed + head) % 5 < 3;
    };
  if (pick(0, 4) == 0) layout.keep = [](int, int64_t, int64_t) { return false; };
  return layout;
}

TEST(Layout, EqualsItsDefinition) {
  std::mt19937 random(31);
  for (int repeat = 0; repeat < 100; ++repeat) {
    const BlockLayout layout = random_layout(random, 3);
    const auto pattern = layout_pattern(layout, 3);
    const int head = repeat % 3;
    SCOPED_TRACE(str(pattern->name(), ", head ", head));
    const Lengths n = pattern->lengths();
    ASSERT_EQ(n, Lengths(layout.query_blocks * layout.block, layout.key_blocks * layout.block));
    for (int64_t i = 0; i < n.queries; ++i)
      for (int64_t j = 0; j < n.keys; ++j) {
        const int64_t of_head = layout.heads == 1 ? 0 : head;
        const int64_t block =
            (of_head * layout.query_blocks + i / layout.block) * layout.key_blocks +
            j / layout.block;
        const bool expected = layout.active[block] && (!layout.causal || j <= i) &&
                              (!layout.keep || layout.keep(head, i, j));
        ASSERT_EQ(pattern->attends(head, i, j), expected) << i << ", " << j;
      }
    for (const Lengths part : {n, Lengths((n.queries + 1) / 2, std::max<int64_t>(1, n.keys - 3))}) {
      expect_exact_runs(*pattern, head, part);
      expect_exact(*pattern, head, part);
    }
    if (testing::Test::HasFailure()) return;
    EXPECT_FALSE(pattern->attends(head, n.queries, 0));
    EXPECT_FALSE(pattern->attends(head, 0, n.keys));
    EXPECT_THROW(build_tile_tables(*pattern, head, {n.queries, n.keys + 1}), Error);
  }
}

BlockLayout filled(int64_t blocks, int64_t block) {
  BlockLayout layout;
  layout.query_blocks = layout.key_blocks = blocks;
  layout.block = block;
  layout.active.assign(blocks * blocks, 1);
  return layout;
}

TEST(Layout, NeighbouringBlocksAreOneRun) {
  BlockLayout layout = filled(5, 8);
  layout.active[2 * 5 + 2] = 0;
  std::vector<KeyRun> runs;
  layout_pattern(layout, 1)->key_runs(0, 17, runs);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].begin, 0);
  EXPECT_EQ(runs[0].end, 16);
  EXPECT_EQ(runs[1].begin, 24);
  EXPECT_EQ(runs[1].end, 40);
}

TEST(Layout, HeadsWithEqualBlocksAreOneGroup) {
  BlockLayout layout = filled(2, 8);
  layout.heads = 4;
  layout.active = {1, 0, 1, 1, /**/ 1, 1, 1, 1, /**/ 1, 0, 1, 1, /**/ 0, 0, 0, 0};
  const auto pattern = layout_pattern(layout, 4);
  EXPECT_EQ(pattern->groups(4), 3);
  EXPECT_EQ((std::vector<int>{pattern->group(0), pattern->group(1), pattern->group(2),
                              pattern->group(3)}),
            (std::vector<int>{0, 1, 0, 2}));
  BlockLayout shared = filled(2, 8);
  EXPECT_EQ(layout_pattern(shared, 5)->groups(5), 1);
  shared.keep = [](int head, int64_t, int64_t j) { return head < 2 || j > 3; };
  EXPECT_EQ(layout_pattern(shared, 5)->groups(5), 2);
}

TEST(Layout, ThePredicateIsAskedOnceAPair) {
  BlockLayout layout = filled(3, 16);
  layout.active[2] = 0;
  std::map<std::tuple<int, int64_t, int64_t>, int> asked;
  layout.keep = [&](int head, int64_t i, int64_t j) {
    return ++asked[{head, i, j}], (i + j) % 2 == 0;
  };
  const auto pattern = layout_pattern(layout, 2);
  for (int head : {0, 1}) build_tile_tables(*pattern, head, pattern->lengths());
  EXPECT_EQ(asked.size(), 2u * 8 * 16 * 16);
  for (const auto& [pair, times] : asked) EXPECT_EQ(times, 1);
  EXPECT_FALSE(asked.contains({0, 0, 32})) << "the block is not active";
}

TEST(Layout, KnowsWhetherItIsCausal) {
  BlockLayout layout = filled(2, 8);
  EXPECT_FALSE(layout_pattern(layout, 1)->causal());
  layout.causal = true;
  EXPECT_TRUE(layout_pattern(layout, 1)->causal());
  layout.causal = false;
  layout.keep = [](int, int64_t i, int64_t j) { return j <= i; };
  EXPECT_TRUE(layout_pattern(layout, 1)->causal());
  layout.keep = [](int, int64_t i, int64_t j) { return j <= i || (i == 3 && j == 4); };
  EXPECT_FALSE(layout_pattern(layout, 1)->causal());
}

TEST(Layout, EqualNamesAreEqualTables) {
  BlockLayout layout = filled(3, 8);
  layout.source = "a.npy";
  const std::string name = layout_pattern(layout, 2)->name();
  EXPECT_TRUE(name.starts_with("layout(a.npy, 3 x 3 blocks of 8, ")) << name;
  EXPECT_EQ(layout_pattern(layout, 2)->name(), name);
  std::set<std::string> names = {name};
  layout.causal = true;
  names.insert(layout_pattern(layout, 2)->name());
  layout.active[4] = 0;
  names.insert(layout_pattern(layout, 2)->name());
  layout.keep = [](int, int64_t, int64_t j) { return j != 3; };
  names.insert(layout_pattern(layout, 2)->name());
  layout.keep = [](int, int64_t, int64_t j) { return j != 4; };
  names.insert(layout_pattern(layout, 2)->name());
  EXPECT_EQ(names.size(), 5u);
}

TEST(Layout, SmallBlocksOfLongSequencesAreFastAndFillTheirTiles) {
  std::mt19937 random(32);
  BlockLayout layout = filled(12288 / 16, 16);
  for (auto& block : layout.active) block = random() % 16 == 0;
  const auto start = std::chrono::steady_clock::now();
  const auto pattern = layout_pattern(layout, 8);
  const TileTables tables = build_tile_tables(*pattern, 0, 12288, kSmallTile);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(tables.pairs.needed, tables.pairs.executed);
  EXPECT_EQ(tables.pairs.needed, 256 * std::count(layout.active.begin(), layout.active.end(), 1));
  EXPECT_LT(seconds, 10) << "0.1 s where nothing else runs";
}

TEST(Layout, ErrorsNameTheField) {
  const auto error = [](auto&& change) {
    BlockLayout layout = filled(2, 8);
    change(layout);
    return error_of([&] { layout_pattern(layout, 4); });
  };
  EXPECT_EQ(error([](BlockLayout&) {}), "");
  EXPECT_EQ(error([](BlockLayout& l) { l.block = 12; }),
            "layout: block must be 8, 16, 32 or 64, got 12");
  EXPECT_EQ(error([](BlockLayout& l) { l.heads = 3; }),
            "layout: is given for 3 heads; expected 1 (shared by all) or 4");
  EXPECT_EQ(
      error([](BlockLayout& l) { l.heads = 4; }),
      "layout: active must hold heads * query blocks * key blocks = 4 * 2 * 2 numbers, got 4");
  EXPECT_EQ(error([](BlockLayout& l) { l.query_blocks = 0; }),
            "layout: there must be 1 to 134217728 query blocks of 8, got 0");
  EXPECT_EQ(error([](BlockLayout& l) { l.key_blocks = 1 << 28; }),
            "layout: there must be 1 to 134217728 key blocks of 8, got 268435456");
  EXPECT_EQ(
      error([](BlockLayout& l) { l.active.pop_back(); }),
      "layout: active must hold heads * query blocks * key blocks = 1 * 2 * 2 numbers, got 3");
  EXPECT_EQ(error([](BlockLayout& l) { l.source = "x.npy", l.active[3] = 7; }),
            "x.npy: must hold only 0 and 1, got 7 for head 0, query block 1, key block 1");
}

// ---- files ----

TEST(LayoutFile, NpyAndHdf5GiveWhatMemoryGives) {
  const TempDir folder;
  std::mt19937 random(33);
  BlockLayout layout;
  layout.heads = 2;
  layout.query_blocks = 3;
  layout.key_blocks = 5;
  layout.block = 16;
  for (int k = 0; k < 2 * 3 * 5; ++k) layout.active.push_back(random() % 2);
  const auto expected = layout_pattern(layout, 2);
  const std::string bytes(layout.active.begin(), layout.active.end());
  write_file(folder / "a.npy", npy_header("|u1", {2, 3, 5}) + bytes);
  {
    Hdf5File file = Hdf5File::create(folder / "a.h5");
    file.write("/some/layout", StoredType::u8, {2, 3, 5}, bytes.data());
    file.commit();
  }
  PatternSpec spec{.kind = "layout", .block = 16, .causal = false, .file = folder / "a.npy"};
  const auto from_npy = make_pattern(spec, 2);
  spec.file = folder / "a.h5";
  spec.dataset = "/some/layout";
  const auto from_hdf5 = make_pattern(spec, 2);
  const std::string hash = expected->name().substr(expected->name().rfind(", "));
  for (const auto* pattern : {from_npy.get(), from_hdf5.get()}) {
    EXPECT_TRUE(pattern->name().ends_with(hash)) << pattern->name();
    for (const int head : {0, 1})
      EXPECT_NO_THROW(
          PairSet::defined(*pattern, head, pattern->lengths())
              .check_equal(PairSet::defined(*expected, head, expected->lengths()), "layout", head));
  }
  EXPECT_TRUE(
      from_npy->name().starts_with(str("layout(", folder / "a.npy", ", 3 x 5 blocks of 16")));
  EXPECT_TRUE(
      from_hdf5->name().starts_with(str("layout(", folder / "a.h5", ", /some/layout, 3 x 5")));
}

TEST(LayoutFile, ErrorsNameTheFileAndThePlace) {
  const TempDir folder;
  const auto error = [&](const std::string& name, const std::string& dataset = "") {
    return error_of([&] {
      make_pattern(
          {
              .kind = "layout",
              .block = 16,
              .file = name.empty() ? "" : folder / name,
              .dataset = dataset,
          },
          2);
    });
  };
  EXPECT_EQ(error(""), "attention pattern 'layout': file is required, a .npy or HDF5 file");
  EXPECT_EQ(error("none.npy"), folder / "none.npy: cannot be opened: No such file or directory");
  EXPECT_EQ(error("."), folder / ".: is not a regular file, expected a .npy or HDF5 file");
  write_file(folder / "empty", "");
  EXPECT_EQ(error("empty"), folder / "empty: is empty, expected an HDF5 file");
  write_file(folder / "text", "0 1 1 0 and more text");
  EXPECT_CONTAINS(error("text"), "is not an HDF5 file");
  write_file(folder / "flat.npy", npy_header("|u1", {4}) + std::string(4, '\1'));
  EXPECT_EQ(error("flat.npy"),
            folder /
                "flat.npy: a layout is (query blocks, key blocks) or (heads, query blocks, "
                "key blocks), got shape (4)");
  write_file(folder / "none_in.npy", npy_header("|u1", {2, 0}));
  EXPECT_EQ(error("none_in.npy"),
            folder / "none_in.npy: a layout cannot have the shape (2, 0): it is empty");
  write_file(folder / "two.npy", npy_header("|i1", {2, 1, 3}) + std::string("\0\1\1\1\0\xfe", 6));
  EXPECT_EQ(
      error("two.npy"),
      folder /
          "two.npy: a layout holds only 0 and 1, got -2 for head 1, query block 0, key block 2");
  write_file(folder / "three.npy", npy_header("|u1", {3, 1, 1}) + std::string(3, '\1'));
  EXPECT_EQ(error("three.npy"),
            folder / "three.npy: is given for 3 heads; expected 1 (shared by all) or 2");
  EXPECT_EQ(
      error("three.npy", "layout"),
      folder / "three.npy: is a .npy file, which holds one array; leave out dataset, got layout");
}

TEST(LayoutFile, Hdf5DatasetsThatAreNoLayoutsAreRefused) {
  const TempDir folder;
  Hdf5File file = Hdf5File::create(folder / "a.h5");
  const std::vector<int64_t> numbers = {1, 0, 256, 1};
  const std::vector<float> reals = {1, 0, 0, 1};
  file.write("/numbers", StoredType::i64, {2, 2}, numbers.data());
  file.write("/reals", StoredType::f32, {2, 2}, reals.data());
  file.commit();
  const auto error = [&](const std::string& dataset) {
    return error_of([&] {
      make_pattern({.kind = "layout", .block = 16, .file = folder / "a.h5", .dataset = dataset}, 2);
    });
  };
  EXPECT_EQ(
      error(""),
      folder /
          "a.h5: is an HDF5 file; dataset must name the layout in it, one of: /numbers, /reals");
  EXPECT_EQ(error("/other"), folder / "a.h5: has no dataset /other");
  EXPECT_EQ(error("/numbers"), folder /
                                   "a.h5, /numbers: a layout holds only 0 and 1, got 256 for head "
                                   "0, query block 1, key block 0");
  EXPECT_CONTAINS(error("/reals"), "/reals does not hold int32 or what converts to it");
}
}  // namespace
}  // namespace weft
