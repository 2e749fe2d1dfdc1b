// SPDX-License-Identifier: MIT
#include "train/inspect/tiles.h"

#include "src/patterns/pattern.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace weft {
namespace {
const PatternView& with_fixed_keys(const PatternView& view) {
  if (view.pattern.most_keys(view.head) > 0)
    fail("head ", view.head, " of ", view.pattern.name(),
         " chooses its keys by content: its tiles are made anew for each text; --checkpoint and "
         "--text draw what it saw");
  return view;
}
}  // namespace

HeadTiles::HeadTiles(const PatternView& view, int64_t head_size, int edge)
    : head_(view.head),
      maps_(with_fixed_keys(view).pattern, view.heads, view.n, head_size, edge) {
  std::vector<PatternPart> parts;
  view.pattern.parts(view.head, parts);
  const int group = view.pattern.group(view.head);
  for (int pass = 0; pass < maps_.passes(); ++pass)
    if (const TileTables* tables = maps_.tables(pass, group))
      passes_.push_back({parts.at(passes_.size()).pattern->name(), tables, maps_.band(pass), pass});
}

TileCounts count_tiles(const TileTables& t) {
  TileCounts counts{.tiles = int64_t{t.query_tiles()} * t.key_tiles()};
  for (const int32_t mask : t.row_mask) ++(mask == -1 ? counts.full : counts.masked);
  return counts;
}

TileCells tile_cells(const TileTables& t, int64_t max_cells) {
  const int64_t longest = std::max(t.query_tiles(), t.key_tiles());
  TileCells grid{.tiles_a_side = (longest + max_cells - 1) / max_cells};
  const int64_t side = grid.tiles_a_side;
  grid.rows = (t.query_tiles() + side - 1) / side;
  grid.columns = (t.key_tiles() + side - 1) / side;
  for (int64_t r = 0; r < grid.rows; ++r)
    for (int64_t c = 0; c < grid.columns; ++c)
      grid.cells.push_back({.tiles = std::min(side, t.query_tiles() - r * side) *
                                     std::min(side, t.key_tiles() - c * side)});
  for (int32_t query = 0; query < t.query_tiles(); ++query)
    for (int32_t entry = t.row_start[query]; entry < t.row_start[query + 1]; ++entry) {
      TileCounts& cell = grid.cells[query / side * grid.columns + t.row_tile[entry] / side];
      ++(t.row_mask[entry] == -1 ? cell.full : cell.masked);
    }
  return grid;
}

uint64_t row_word(const TileTables& t, int64_t entry, int row) {
  const int64_t mask = t.row_mask[entry];
  return mask == -1 ? ~uint64_t{0} >> (64 - t.edge) : t.masks[mask * t.edge + row];
}

int64_t entry_of(const TileTables& t, int32_t query_tile, int32_t key_tile) {
  const auto first = t.row_tile.begin() + t.row_start[query_tile],
             end = t.row_tile.begin() + t.row_start[query_tile + 1],
             found = std::lower_bound(first, end, key_tile);
  return found != end && *found == key_tile ? found - t.row_tile.begin() : -1;
}
}  // namespace weft
