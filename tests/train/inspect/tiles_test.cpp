// SPDX-License-Identifier: MIT
// Tiles, counts and mask words that `inspect` shows, against the predicate of the pattern.
#include "train/inspect/tiles.h"

#include "src/parts/parts.h"
#include "tests/src/patterns/pattern_testing.h"
#include "tests/temp_dir.h"
#include "tests/train/inspect/lines.h"
#include "train/inspect/tile_image.h"
#include "train/inspect/tile_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace weft {
namespace {
// What a tile has to be: of the pairs of its slots, all or some or none are in the pattern.
TileCounts defined(const PatternPart& part, const TileTables& t, int32_t q, int32_t k,
                   int64_t& needed) {
  int64_t pairs = 0;
  for (int row = 0; row < t.edge; ++row)
    for (int bit = 0; bit < t.edge; ++bit) {
      const int32_t i = t.query_order[q * t.edge + row], j = t.key_order[k * t.edge + bit];
      const bool is_needed = i >= 0 && j >= 0 && part.pattern->attends(part.head, i, j);
      pairs += is_needed;
      const int64_t entry = entry_of(t, q, k);
      EXPECT_EQ(entry >= 0 && (row_word(t, entry, row) >> bit & 1) != 0, is_needed)
          << "query " << i << ", key " << j;
    }
  needed += pairs;
  const bool full = pairs == int64_t{t.edge} * t.edge;
  return {.tiles = 1, .full = full ? 1 : 0, .masked = pairs > 0 && !full ? 1 : 0};
}

// Each tile, the sums over cells of any size, and both counts of pairs.
void check_tiles(const PatternView& view, int edge) {
  const HeadTiles tiles(view, 64, edge);
  std::vector<PatternPart> parts;
  view.pattern.parts(view.head, parts);
  ASSERT_EQ(tiles.passes().size(), parts.size());
  int64_t needed = 0, executed = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const TileTables& t = *tiles.passes()[p].tables;
    ASSERT_TRUE(edge == 0 || t.edge == edge);
    const TileCells single = tile_cells(t, std::max(t.query_tiles(), t.key_tiles()));
    ASSERT_EQ(single.tiles_a_side, 1);
    ASSERT_EQ(std::ssize(single.cells), int64_t{t.query_tiles()} * t.key_tiles());
    TileCounts all;
    for (int32_t q = 0; q < t.query_tiles(); ++q)
      for (int32_t k = 0; k < t.key_tiles(); ++k) {
        const TileCounts expected = defined(parts[p], t, q, k, needed),
                         cell = single.cells[q * t.key_tiles() + k];
        EXPECT_EQ(cell.full, expected.full) << "q" << q << ", k" << k;
        EXPECT_EQ(cell.masked, expected.masked) << "q" << q << ", k" << k;
        all.tiles += 1, all.full += expected.full, all.masked += expected.masked;
      }
    executed += all.executed() * t.edge * t.edge;
    const TileCounts counts = count_tiles(t);
    EXPECT_EQ(counts.tiles, all.tiles);
    EXPECT_EQ(counts.full, all.full);
    EXPECT_EQ(counts.masked, all.masked);
    EXPECT_EQ(counts.skipped(), all.tiles - all.full - all.masked);
    for (const int64_t most : {1, 2, 3}) {
      TileCounts sum;
      const TileCells cells = tile_cells(t, most);
      EXPECT_LE(std::max(cells.rows, cells.columns), most);
      for (const TileCounts& cell : cells.cells)
        sum.tiles += cell.tiles, sum.full += cell.full, sum.masked += cell.masked;
      EXPECT_EQ(sum.tiles, all.tiles);
      EXPECT_EQ(sum.full, all.full);
      EXPECT_EQ(sum.masked, all.masked);
    }
  }
  const int64_t attended = PairSet::defined(view.pattern, view.head, view.n).count();
  EXPECT_EQ(needed, attended);
  EXPECT_EQ(tiles.pairs().needed, attended);
  EXPECT_EQ(tiles.pairs().executed, executed);
}

TEST(InspectTiles, EqualThePredicate) {
  std::mt19937 random(11);
  for (int repeat = 0; repeat < 120; ++repeat) {
    const RandomCase c = random_case(random, true);
    SCOPED_TRACE(c.text());
    for (const int edge : {0, kTile, kSmallTile})
      check_tiles({*c.pattern, c.spec, c.heads, c.head, c.n}, edge);
  }
}

TEST(InspectTiles, EqualThePredicateWhereKeysAreNotTheQueries) {
  for (const PatternSpec& spec : {PatternSpec{"all"}, PatternSpec{.kind = "all", .causal = false},
                                  PatternSpec{.kind = "local", .stride = 20, .causal = false},
                                  PatternSpec{"strided", 7}, PatternSpec{"fixed", 16, 3, 2}})
    for (const Lengths n : {Lengths(1, 67), Lengths(67, 1), Lengths(130, 65), Lengths(61, 199)}) {
      SCOPED_TRACE(str(spec.kind, ", ", n.queries, " and ", n.keys));
      const auto pattern = make_pattern(spec, 2);
      for (const int edge : {kTile, kSmallTile}) check_tiles({*pattern, spec, 2, 1, n}, edge);
    }
}

std::string tiles_drawn(const PatternSpec& spec, Lengths n, int edge = 0, int heads = 1) {
  const auto pattern = make_pattern(spec, heads);
  const PatternView view = {*pattern, spec, heads, 0, n};
  return tiles_text(view, HeadTiles(view, 64, edge));
}

// Characters are the kinds of tiles, and a full tile is one without a mask.
TEST(InspectTiles, TextDrawsEachTile) {
  const std::string text = tiles_drawn({"fixed", 128, 32}, 400, kTile);
  EXPECT_CONTAINS(text, "\n  executed  18 of 63 tiles: 5 full, 13 masked; 45 skipped\n");
  const auto pattern = make_pattern({"fixed", 128, 32}, 1);
  const TileTables t = build_tile_tables(*pattern, 0, 400, kTile);
  const std::vector<std::string> lines = lines_of(text);
  const auto first = std::ranges::find_if(
      lines, [](const std::string& line) { return line.starts_with("  q0  "); });
  ASSERT_GE(lines.end() - first, t.query_tiles());
  for (int32_t q = 0; q < t.query_tiles(); ++q) {
    std::string drawn = str("  q", q, "  ");
    for (int32_t k = 0; k < t.key_tiles(); ++k) {
      int64_t needed = 0;
      const TileCounts tile = defined({pattern.get(), 0}, t, q, k, needed);
      drawn += tile.full ? '#' : tile.masked ? 'o' : '.';
    }
    EXPECT_EQ(first[q], drawn);
  }
}

TEST(InspectTiles, TextDrawsEachPairOfAFewSlots) {
  const std::string text = tiles_drawn({"strided", 3}, 18, kSmallTile);
  EXPECT_CONTAINS(text, R"(
        k0               k1
            11   111   1 11
        0369251470362581 47
  q0  0 #---------------
      3 ##--------------
)");
  EXPECT_CONTAINS(text,
                  "\n     11 ------------####\n\n  q1 14 ------------#### #---------------\n");
}

// Far more tiles than columns, in a text that is no longer.
TEST(InspectTiles, TextStaysSmall) {
  std::vector<std::string> texts = {
      tiles_drawn({"local", 300}, 60000), tiles_drawn({"strided", 128}, 12288),
      tiles_drawn({"fixed", 128, 32, 4}, 12288, 0, 4), tiles_drawn({"fixed", 16, 4}, 500)};
  PatternSpec merged{"merged"};
  merged.of = {{"local", 7}, {"strided", 11}, {"fixed", 16, 4}};
  texts.push_back(tiles_drawn(merged, 3000));
  for (const std::string& text : texts) {
    const std::vector<std::string> lines = lines_of(text);
    EXPECT_LT(lines.size(), 500u) << text;
    for (const std::string& line : lines) EXPECT_LE(line.size(), 100u) << line;
  }
  EXPECT_CONTAINS(texts[0], "a character stands for 15 x 15 tiles");
  EXPECT_CONTAINS(texts[4], "\npass 3 of 3: ");
}

TEST(InspectTiles, SlotsAreNamedByTheirPositions) {
  const std::vector<int32_t> slots = {4, 5, 6, 9, -1, -1, 0, 3, 6, -1};
  EXPECT_EQ(slots_text(slots), "4-6, 9, 2 slots empty, 0, 3 .. 6, 1 slot empty");
  EXPECT_EQ(numbers_downwards(std::vector<int32_t>{0, 9, -1, 10, 123}, "> "),
            ">     1\n>    12\n> 09 03\n");
}

// The colour of each pair is that of its tile and of the predicate.
TEST(InspectTiles, ImageHasAColourForEachPair) {
  std::mt19937 random(3);
  for (int repeat = 0; repeat < 12; ++repeat) {
    const RandomCase c = random_case(random, true);
    SCOPED_TRACE(c.text());
    const PatternView view = {*c.pattern, c.spec, c.heads, c.head, c.n};
    const HeadTiles tiles(view, 64, repeat % 2 ? kTile : kSmallTile);
    std::vector<PatternPart> parts;
    c.pattern->parts(c.head, parts);
    Image image = tile_image(view, tiles);
    const std::vector<TilePanel> panels = tile_panels(view, tiles);
    for (std::size_t p = 0; p < panels.size(); ++p) {
      const TilePanel& panel = panels[p];
      const TileTables& t = *panel.tables;
      if (panel.tiles_a_cell) continue;
      for (std::size_t r = 0; r < t.query_order.size(); ++r)
        for (std::size_t s = 0; s < t.key_order.size(); ++s) {
          const auto q = static_cast<int32_t>(r) / t.edge, k = static_cast<int32_t>(s) / t.edge;
          const int32_t i = t.query_order[r], j = t.key_order[s];
          const bool needed = i >= 0 && j >= 0 && parts[p].pattern->attends(parts[p].head, i, j);
          const int64_t entry = entry_of(t, q, k);
          const Rgb expected = entry < 0                 ? kSkippedColour
                               : t.row_mask[entry] == -1 ? kFullColour
                               : needed                  ? kNeededColour
                                                         : kWastedColour;
          const int64_t x = panel.x + k * panel.pitch() + int64_t(s) % t.edge * panel.zoom,
                        y = panel.y + q * panel.pitch() + int64_t(r) % t.edge * panel.zoom;
          for (const int64_t inside : {int64_t{0}, panel.zoom - 1}) {
            const Rgb& drawn = image.at(x + inside, y + inside);
            ASSERT_TRUE(drawn.red == expected.red && drawn.green == expected.green &&
                        drawn.blue == expected.blue)
                << "pass " << p << ", slots " << r << " and " << s;
          }
        }
    }
  }
}

// Where each tile is a square: full, masked and skipped ones.
TEST(InspectTiles, ImageOfALongSequenceHasAColourForEachTile) {
  const PatternSpec spec{"local", 500};
  const auto pattern = make_pattern(spec, 1);
  const PatternView view = {*pattern, spec, 1, 0, 3000};
  const HeadTiles tiles(view, 64, kTile);
  Image image = tile_image(view, tiles);
  const TilePanel panel = tile_panels(view, tiles).at(0);
  EXPECT_EQ(panel.tiles_a_cell, 1);
  const auto drawn = [&](int64_t q, int64_t k) {
    return image.at(panel.x + k * panel.pitch(), panel.y + q * panel.pitch()).red;
  };
  EXPECT_EQ(drawn(9, 9), kNeededColour.red);
  EXPECT_EQ(drawn(9, 8), kFullColour.red);
  EXPECT_EQ(drawn(9, 1), kNeededColour.red);
  EXPECT_EQ(drawn(9, 0), kSkippedColour.red);
  EXPECT_EQ(drawn(9, 10), kSkippedColour.red);
}

TEST(InspectTiles, HeadsThatChooseByContentAreRefused) {
  if (const std::string absent = absent_part_text("routing"); !absent.empty())
    GTEST_SKIP() << absent;
  PatternSpec routing{"routing"}, heads{"heads"};
  routing.clusters = 4, routing.window = 16;
  heads.of = {routing, {"local", 8}};
  const auto pattern = make_pattern(heads, 2);
  const PatternView local = {*pattern, heads, 2, 1, 64}, content = {*pattern, heads, 2, 0, 64};
  EXPECT_EQ(HeadTiles(local, 64).pairs().needed, 64 * 8 - 28);
  try {
    HeadTiles(content, 64);
    FAIL() << "it is shown";
  } catch (const Error& e) {
    EXPECT_CONTAINS(e.what(),
                    "head 0 of heads(routing(clusters 4, window 16), local(stride 8)) "
                    "chooses its keys by content");
  }
}
}  // namespace
}  // namespace weft
