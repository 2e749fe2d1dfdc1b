// SPDX-License-Identifier: MIT
#include "train/inspect/tile_text.h"

#include "src/config/names.h"
#include "train/program/counts.h"
#include "train/program/progress.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

namespace weft {
namespace {
constexpr std::size_t kColumns = 100;    // of a line
constexpr int64_t kMostCharacters = 64;  // of the matrix of tiles, a side
constexpr std::size_t kMostSlots = 80;   // a side: pairs are drawn slot by slot
constexpr std::size_t kMostMasks = 4;    // drawn where there are more slots
constexpr std::size_t kMaskSlots = 512;  // up to which they are
constexpr int32_t kMostOrders = 8;       // tiles whose slots are listed

// Cut to the width of a line; "...": there is more.
std::string cut(std::string line) {
  if (line.size() <= kColumns) return line;
  return line.substr(0, line.rfind(',', kColumns - 5)) + ", ...";
}

std::string without_spaces_at_end(const std::string& line) {
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

std::span<const int32_t> slots_of(const std::vector<int32_t>& order, int32_t tile, int edge) {
  return std::span(order).subspan(static_cast<std::size_t>(tile) * edge, edge);
}

bool is_empty(std::span<const int32_t> slots) {
  return std::ranges::all_of(slots, [](int32_t position) { return position < 0; });
}

// The slots of one side: in one line where they are the positions in order.
std::string order_text(const char* side, char letter, const std::vector<int32_t>& order, int edge) {
  const auto filled = std::ranges::find(order, -1) - order.begin();
  bool in_order = std::all_of(order.begin() + filled, order.end(), [](int32_t p) { return p < 0; });
  for (std::ptrdiff_t slot = 0; slot < filled; ++slot) in_order &= order[slot] == slot;
  const auto tiles = static_cast<int32_t>(order.size()) / edge;
  std::string text = str("  ", side, ": ", tiles, tiles == 1 ? " tile" : " tiles");
  if (in_order) {
    text += ", positions in order: slot s holds position s";
    if (filled < std::ssize(order)) text += str(", ", std::ssize(order) - filled, " empty behind");
    return text + "\n";
  }
  text += ", and the positions in the slots of each\n";
  int32_t lines = 0;
  for (int32_t tile = 0; tile < tiles && lines < kMostOrders; ++lines) {
    int32_t end = tile;  // of tiles without any position
    while (end < tiles && is_empty(slots_of(order, end, edge))) ++end;
    std::string name = str("    ", letter, tile);
    if (end > tile + 1) name += str(" to ", letter, end - 1);
    name.resize(std::max<std::size_t>(name.size(), 8), ' ');
    const std::string slots = end > tile ? "empty" : slots_text(slots_of(order, tile, edge));
    text += cut(name + "  " + slots) + "\n";
    tile = std::max(end, tile + 1);
    if (lines + 1 == kMostOrders && tile < tiles)
      text += str("    ... and ", tiles - tile, " tiles more\n");
  }
  return text;
}

char character_of(const TileCounts& cell, bool single) {
  if (cell.executed() == 0) return '.';
  if (single) return cell.full ? '#' : 'o';
  return cell.skipped() == 0 ? '#' : ":-=+*"[cell.executed() * 5 / cell.tiles];
}

std::string matrix_text(const TileTables& t) {
  const TileCells grid = tile_cells(t, kMostCharacters);
  const int64_t side = grid.tiles_a_side;
  const bool single = side == 1;
  std::string text =
      "\n  matrix of tiles: rows q are tiles of queries, columns k tiles of keys\n  ";
  text += single ? "# full, no mask; o masked; . skipped\n"
                 : str("a character stands for ", side, " x ", side,
                       " tiles: # all executed, . all skipped, :-=+* a growing share\n");
  std::vector<int32_t> numbers(grid.columns);
  for (int64_t c = 0; c < grid.columns; ++c) numbers[c] = static_cast<int32_t>(c * side);
  const std::size_t width = std::to_string((grid.rows - 1) * side).size();
  text += numbers_downwards(numbers, std::string(width + 5, ' '));
  for (int64_t r = 0; r < grid.rows; ++r) {
    const std::string number = std::to_string(r * side);
    text += "  q" + number + std::string(width - number.size() + 2, ' ');
    for (int64_t c = 0; c < grid.columns; ++c)
      text += character_of(grid.cells[r * grid.columns + c], single);
    text += '\n';
  }
  return text;
}

// The key tiles that any query tile visits.
std::vector<int32_t> visited_keys(const TileTables& t) {
  std::vector<int32_t> keys;
  for (int32_t k = 0; k < t.key_tiles(); ++k)
    if (t.col_start[k] < t.col_start[k + 1]) keys.push_back(k);
  return keys;
}

// Every pair of slots in these key tiles, tiles apart from each other.
std::string pairs_text(const TileTables& t, const std::vector<int32_t>& keys) {
  std::string text =
      "\n  all pairs: # needed; - executed, then masked; blank: the tile is skipped; numbers: the\n"
      "  positions in the slots. Tiles of keys that no query needs are left out.\n";
  const std::size_t width = std::to_string(*std::ranges::max_element(t.query_order)).size();
  std::vector<int32_t> columns;
  std::string tiles(width + 5 + std::to_string(t.query_tiles() - 1).size(), ' ');
  const std::string margin(tiles.size(), ' ');
  for (const int32_t k : keys) {
    const auto slots = slots_of(t.key_order, k, t.edge);
    if (!columns.empty()) columns.push_back(-1);
    columns.insert(columns.end(), slots.begin(), slots.end());
    const std::string name = str("k", k);
    tiles += name + std::string(t.edge + 1 - name.size(), ' ');
  }
  text += without_spaces_at_end(tiles) + "\n" + numbers_downwards(columns, margin);
  for (int32_t q = 0; q < t.query_tiles(); ++q) {
    if (q > 0) text += '\n';
    for (int row = 0; row < t.edge; ++row) {
      const int32_t position = t.query_order[q * t.edge + row];
      const std::string number = position < 0 ? "" : std::to_string(position);
      std::string line = row == 0 ? str("  q", q) : "";
      line += std::string(margin.size() - 1 - line.size() - number.size(), ' ') + number + ' ';
      for (const int32_t k : keys) {
        if (k != keys[0]) line += ' ';
        const int64_t entry = entry_of(t, q, k);
        const uint64_t word = entry < 0 ? 0 : row_word(t, entry, row);
        for (int bit = 0; bit < t.edge; ++bit)
          line += entry < 0 ? ' ' : (word >> bit & 1) != 0 ? '#' : '-';
      }
      text += without_spaces_at_end(line) + "\n";
    }
  }
  return text;
}

// The tiles with this mask: "(q0, k0), (q1, k1)".
std::string tiles_with_mask(const TileTables& t, int32_t mask) {
  std::vector<std::string> tiles;
  for (int32_t q = 0; q < t.query_tiles(); ++q)
    for (int32_t entry = t.row_start[q]; entry < t.row_start[q + 1]; ++entry)
      if (t.row_mask[entry] == mask) tiles.push_back(str("(q", q, ", k", t.row_tile[entry], ")"));
  return joined(tiles);
}

// Masks that differ, with the tiles that have them.
std::string masks_text(const TileTables& t) {
  const std::size_t masks = t.masks.size() / t.edge;
  std::string text;
  for (std::size_t m = 0; m < std::min(masks, kMostMasks); ++m) {
    text += "\n" + cut(str("  mask ", m, " of ", tiles_with_mask(t, static_cast<int32_t>(m)))) +
            "\n  a row is a slot of queries, a column a slot of keys: # needed, - masked\n";
    for (int row = 0; row < t.edge; ++row) {
      text += "    ";
      for (int bit = 0; bit < t.edge; ++bit)
        text += (t.masks[m * t.edge + row] >> bit & 1) != 0 ? '#' : '-';
      text += '\n';
    }
  }
  if (masks > kMostMasks) text += str("\n  ", masks - kMostMasks, " masks more; --png draws all\n");
  return text;
}

std::string pass_text(const TilePass& pass, std::size_t number, std::size_t passes) {
  const TileTables& t = *pass.tables;
  std::string text = "\n";
  if (passes > 1) text += wrapped(str("pass ", number + 1, " of ", passes, ": ", pass.name), "");
  for (const std::string& line : count_lines(t)) text += "  " + line + "\n";
  if (pass.band)
    text += str("  a band of stride ", pass.band.stride, " and reach ", pass.band.reach,
                ": kernels for bands read no tiles\n");
  text += "\n";
  text += order_text("queries", 'q', t.query_order, t.edge);
  text += order_text("keys", 'k', t.key_order, t.edge);
  text += matrix_text(t);
  const std::vector<int32_t> keys = visited_keys(t);
  const std::size_t slots = std::max(t.query_order.size(), keys.size() * t.edge);
  if (keys.empty()) return text;
  if (slots <= kMostSlots) return text + pairs_text(t, keys);
  if (slots <= kMaskSlots) return text + masks_text(t);
  return text + str("\n  the pairs of each tile are drawn for at most ", kMaskSlots,
                    " slots: try --n 256\n");
}
}  // namespace

std::string slots_text(std::span<const int32_t> slots) {
  std::vector<std::string> pieces;
  for (auto at = slots.begin(); at != slots.end();) {
    const bool empty = *at < 0;
    const auto end = std::find_if(at, slots.end(), [&](int32_t p) { return (p < 0) != empty; });
    const auto count = end - at;
    pieces.push_back(empty ? str(count, count == 1 ? " slot" : " slots", " empty")
                           : numbers_text({at, end}));
    at = end;
  }
  return joined(pieces);
}

std::string wrapped(const std::string& text, const std::string& indent) {
  std::string out, rest = text;
  const std::size_t width = kColumns - 10 - indent.size();
  while (rest.size() > width && rest.rfind(' ', width) != std::string::npos) {
    const std::size_t space = rest.rfind(' ', width);
    out += indent + rest.substr(0, space) + "\n";
    rest = rest.substr(space + 1);
  }
  return out + indent + rest + "\n";
}

std::string numbers_downwards(std::span<const int32_t> numbers, const std::string& indent) {
  const int32_t largest = numbers.empty() ? -1 : *std::ranges::max_element(numbers);
  const std::size_t lines = largest < 0 ? 0 : std::to_string(largest).size();
  std::string text;
  for (std::size_t line = 0; line < lines; ++line) {
    std::string digits;
    for (const int32_t number : numbers) {
      const std::string all = number < 0 ? "" : std::to_string(number);
      const std::size_t blank = lines - all.size();
      digits += line < blank ? ' ' : all[line - blank];
    }
    text += without_spaces_at_end(indent + digits) + "\n";
  }
  return text;
}

std::vector<std::string> count_lines(const TileTables& t) {
  const TileCounts counts = count_tiles(t);
  const auto number = [](int64_t value) { return grouped_digits(value); };
  return {
      str("tiles     ", number(t.query_tiles()), " of queries x ", number(t.key_tiles()),
          " of keys, each ", t.edge, " x ", t.edge, " pairs"),
      str("executed  ", number(counts.executed()), " of ", number(counts.tiles),
          " tiles: ", number(counts.full), " full, ", number(counts.masked), " masked; ",
          number(counts.skipped()), " skipped"),
      str("pairs     ", number(t.pairs.needed), " needed, ", number(t.pairs.executed),
          " executed: ", number(counts.executed()), " x ", t.edge, " x ", t.edge),
      str("waste     ", fixed_text(t.pairs.waste(), 3), ": executed / needed pairs"),
  };
}

std::string tiles_text(const PatternView& view, const HeadTiles& tiles) {
  std::string text = wrapped(title_of(view), "");
  const std::size_t passes = tiles.passes().size();
  if (passes > 1)
    text += str(passes, " passes, one after the other: ", grouped_digits(tiles.pairs().needed),
                " pairs needed, ", grouped_digits(tiles.pairs().executed), " executed, waste ",
                fixed_text(tiles.pairs().waste(), 3), "\n");
  for (std::size_t p = 0; p < passes; ++p) text += pass_text(tiles.passes()[p], p, passes);
  return text;
}
}  // namespace weft
