// SPDX-License-Identifier: MIT
#include "train/inspect/tile_image.h"

#include "train/inspect/tile_text.h"
#include "train/program/letters.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace weft {
namespace {
constexpr int64_t kPanel = 640;             // pixels of the longest side of a panel, about
constexpr int64_t kMostCellsOfImage = 256;  // of a side, where there are more slots
constexpr int64_t kMostPairs = 1024;        // slots of a side of which each pair is drawn
constexpr int64_t kMargin = 24, kLine = kLetterHeight + 8;
constexpr int64_t kRowLabels = 6 * kLetterWidth;  // "q12345"
constexpr Rgb kPaper{255, 255, 255}, kInk{40, 40, 40}, kPale{110, 110, 110};

// Thin lines of a sparse pattern stay visible where many tiles share a cell.
Rgb colour_of(const TileCounts& cell, bool single) {
  if (cell.executed() == 0) return kSkippedColour;
  if (cell.full == cell.tiles) return kFullColour;
  if (single) return kNeededColour;
  const double share = static_cast<double>(cell.executed()) / static_cast<double>(cell.tiles);
  return mix(kSkippedColour, kNeededColour, 0.3 + 0.7 * std::sqrt(share));
}

void draw_pairs(Image& image, const TilePanel& panel, int32_t query_tile, int32_t key_tile,
                int64_t x, int64_t y) {
  const TileTables& t = *panel.tables;
  const int64_t entry = entry_of(t, query_tile, key_tile), zoom = panel.zoom;
  if (entry < 0) return fill(image, x, y, panel.square(), panel.square(), kSkippedColour);
  const Rgb needed = t.row_mask[entry] == -1 ? kFullColour : kNeededColour;
  for (int row = 0; row < t.edge; ++row) {
    const uint64_t word = row_word(t, entry, row);
    for (int bit = 0; bit < t.edge; ++bit)
      fill(image, x + bit * zoom, y + row * zoom, zoom, zoom,
           (word >> bit & 1) != 0 ? needed : kWastedColour);
  }
}

void draw_squares(Image& image, const TilePanel& panel) {
  const TileTables& t = *panel.tables;
  const int64_t longest = std::max(t.query_tiles(), t.key_tiles());
  const TileCells grid =
      tile_cells(t, panel.tiles_a_cell ? std::max(panel.rows, panel.columns) : longest);
  for (int64_t r = 0; r < panel.rows; ++r)
    for (int64_t c = 0; c < panel.columns; ++c) {
      const int64_t x = panel.x + c * panel.pitch(), y = panel.y + r * panel.pitch();
      if (panel.tiles_a_cell)
        fill(image, x, y, panel.square(), panel.square(),
             colour_of(grid.cells[r * grid.columns + c], panel.tiles_a_cell == 1));
      else
        draw_pairs(image, panel, static_cast<int32_t>(r), static_cast<int32_t>(c), x, y);
    }
}

// Numbers of tiles at the left and above, as many as have room.
void draw_labels(Image& image, const TilePanel& panel) {
  const int64_t tiles = std::max<int64_t>(1, panel.tiles_a_cell), pitch = panel.pitch();
  const auto every = [&](int64_t room) { return (room + pitch - 1) / pitch; };
  for (int64_t r = 0; r < panel.rows; r += every(kLine)) {
    const std::string name = str("q", r * tiles);
    write_letters(image, panel.x - kLetterWidth * std::ssize(name) - 6,
                  panel.y + r * pitch + std::max<int64_t>(0, (panel.square() - kLetterHeight) / 2),
                  name, kInk);
  }
  for (int64_t c = 0; c < panel.columns; c += every(kRowLabels))
    write_letters(image, panel.x + c * pitch, panel.y - kLine, str("k", c * tiles), kInk);
}

// Lines below a panel: counts, and whether slots are positions in order.
std::vector<std::string> lines_of(const TilePanel& panel) {
  std::vector<std::string> lines = count_lines(*panel.tables);
  const auto in_order = [](const std::vector<int32_t>& order) {
    for (std::size_t slot = 0; slot < order.size(); ++slot)
      if (order[slot] >= 0 && order[slot] != static_cast<int32_t>(slot)) return false;
    return true;
  };
  const auto text = [&](const std::vector<int32_t>& order) {
    return in_order(order) ? "positions in order" : "positions permuted";
  };
  lines.push_back(str("slots     queries: ", text(panel.tables->query_order),
                      "; keys: ", text(panel.tables->key_order)));
  return lines;
}

struct Key {
  Rgb colour;
  std::string text;
};

std::vector<Key> legend_of(const std::vector<TilePanel>& panels) {
  const int64_t tiles = panels[0].tiles_a_cell;
  if (tiles > 1)
    return {{kFullColour, str("all of ", tiles, " x ", tiles, " tiles full: no mask")},
            {kNeededColour, "all executed, some masked; paler: fewer executed"},
            {kSkippedColour, "all skipped"}};
  if (tiles == 1)
    return {{kFullColour, "full tile: no mask"},
            {kNeededColour, "masked tile"},
            {kSkippedColour, "skipped tile"}};
  return {{kFullColour, "full tile: no mask"},
          {kNeededColour, "masked tile: needed pair"},
          {kWastedColour, "masked tile: pair computed, then dropped"},
          {kSkippedColour, "skipped tile"}};
}

int64_t panel_width(const TilePanel& panel) {
  int64_t width = kRowLabels + panel.width();
  for (const std::string& line : lines_of(panel))
    width = std::max<int64_t>(width, kLetterWidth * std::ssize(line));
  return width;
}

// The title, in lines of `columns` letters.
std::vector<std::string> title_lines(const PatternView& view, int64_t columns) {
  std::vector<std::string> lines;
  std::string rest = title_of(view);
  const auto width = static_cast<std::size_t>(columns);
  while (rest.size() > width) {
    const std::size_t space = rest.rfind(' ', width);
    const std::size_t end = space == std::string::npos || space == 0 ? width : space;
    lines.push_back(rest.substr(0, end));
    rest = rest.substr(std::min(end + 1, rest.size()));
  }
  lines.push_back(rest);
  return lines;
}

TilePanel panel_of(const TileTables& t) {
  TilePanel panel{.tables = &t};
  const int64_t longest = std::max(t.query_tiles(), t.key_tiles());
  panel.rows = t.query_tiles(), panel.columns = t.key_tiles();
  if (longest * t.edge <= kMostPairs) {
    panel.zoom = std::max<int64_t>(1, kPanel / (longest * t.edge));
    return panel;
  }
  const TileCells grid = tile_cells(t, kMostCellsOfImage);
  panel.rows = grid.rows, panel.columns = grid.columns, panel.tiles_a_cell = grid.tiles_a_side;
  panel.zoom = std::max<int64_t>(3, kPanel / std::max(grid.rows, grid.columns));
  return panel;
}

int64_t image_width(const std::vector<TilePanel>& panels) {
  int64_t width = kMargin;
  for (const TilePanel& panel : panels) width += panel_width(panel) + kMargin;
  return width;
}
}  // namespace

std::vector<TilePanel> tile_panels(const PatternView& view, const HeadTiles& tiles) {
  std::vector<TilePanel> panels;
  for (const TilePass& pass : tiles.passes()) panels.push_back(panel_of(*pass.tables));
  const auto title =
      std::ssize(title_lines(view, (image_width(panels) - 2 * kMargin) / kLetterWidth));
  int64_t x = kMargin;
  for (TilePanel& panel : panels) {
    panel.x = x + kRowLabels;
    panel.y = kMargin + (title + 3) * kLine;  // pass, axis and column labels
    x += panel_width(panel) + kMargin;
  }
  return panels;
}

Image tile_image(const PatternView& view, const HeadTiles& tiles) {
  const std::vector<TilePanel> panels = tile_panels(view, tiles);
  const std::vector<Key> legend = legend_of(panels);
  const int64_t width = image_width(panels);
  int64_t below = 0;  // the lowest panel
  for (const TilePanel& panel : panels) below = std::max(below, panel.y + panel.height());
  const auto lines = std::ssize(lines_of(panels[0])) + std::ssize(legend);
  Image image(width, below + (lines + 1) * kLine + 2 * kMargin);
  fill(image, 0, 0, image.width, image.height, kPaper);
  int64_t y = kMargin;
  for (const std::string& line : title_lines(view, (width - 2 * kMargin) / kLetterWidth)) {
    write_letters(image, kMargin, y, line, kInk);
    y += kLine;
  }
  for (std::size_t p = 0; p < panels.size(); ++p) {
    const TilePanel& panel = panels[p];
    if (panels.size() > 1)
      write_letters(image, panel.x, y, str("pass ", p + 1, " of ", panels.size()), kInk);
    write_letters(image, panel.x, y + kLine, "rows: tiles of queries, columns: tiles of keys",
                  kPale);
    draw_labels(image, panel);
    draw_squares(image, panel);
    int64_t line = below + kMargin;
    for (const std::string& text : lines_of(panel)) {
      write_letters(image, panel.x - kRowLabels, line, text, kInk);
      line += kLine;
    }
  }
  y = image.height - kMargin - std::ssize(legend) * kLine;
  for (const Key& key : legend) {
    fill(image, kMargin, y, kLetterHeight, kLetterHeight, key.colour);
    write_letters(image, kMargin + 2 * kLetterHeight, y, key.text, kInk);
    y += kLine;
  }
  return image;
}
}  // namespace weft
