// SPDX-License-Identifier: MIT
#include "train/report/pattern_image.h"

#include "kernels/view.h"
#include "src/patterns/pattern.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace weft {
namespace {
constexpr int64_t kPanel = 768;  // pixels: the longest side of a panel
constexpr int64_t kMargin = 24;
constexpr Rgb kAttended{31, 90, 166}, kEmptyCell{255, 255, 255}, kQuery{200, 55, 20},
    kUnseen{232, 232, 232}, kBackground{250, 250, 250}, kFrame{120, 120, 120},
    kQueryRow{250, 225, 205};

// Thin lines of a sparse pattern stay visible when many positions share a pixel.
double tint(double share) { return share == 0 ? 0 : 0.3 + 0.7 * std::sqrt(share); }

// Which of `rows` rows of cells position `i` of n is in (ConnectivityGrid).
int64_t row_of(int64_t i, int64_t n, int64_t rows) {
  int64_t row = i * rows / n;
  while ((row + 1) * n / rows <= i) ++row;
  while (row * n / rows > i) --row;
  return row;
}

// A grid whose cells are squares of `zoom` pixels.
struct Panel {
  ConnectivityGrid grid;
  int64_t zoom = 1;
  int64_t query_row = -1;  // of a matrix: the row of the query; -1: a receptive field
};

Panel field_panel(const AttentionPattern& pattern, const FieldSpec& spec) {
  const int64_t longest = std::max(spec.layout.height, spec.layout.columns());
  return {field_grid(pattern, spec, (longest + kPanel - 1) / kPanel),
          std::max<int64_t>(1, kPanel / longest)};
}

Panel matrix_panel(const AttentionPattern& pattern, const PictureSpec& spec) {
  Panel panel{connectivity(pattern, spec.head, spec.n, kPanel)};
  panel.zoom = std::max<int64_t>(1, kPanel / std::max(panel.grid.rows, panel.grid.columns));
  panel.query_row = row_of(spec.position, spec.n.queries, panel.grid.rows);
  return panel;
}

void draw(Image& image, int64_t x0, int64_t y0, const Panel& panel) {
  const auto& [grid, zoom, query_row] = panel;
  const bool matrix = query_row >= 0;
  const int64_t side = zoom - (!matrix && zoom > 3 ? 1 : 0);
  if (matrix) fill(image, x0 - 1, y0 - 1, grid.columns * zoom + 2, grid.rows * zoom + 2, kFrame);
  for (int64_t cell = 0; cell < grid.rows * grid.columns; ++cell) {
    const int64_t row = cell / grid.columns, column = cell % grid.columns;
    const double share = grid.share[cell];
    if (share < 0) continue;
    const Rgb& empty = !matrix ? kUnseen : row == query_row ? kQueryRow : kEmptyCell;
    fill(image, x0 + column * zoom, y0 + row * zoom, side, side,
         cell == grid.own ? kQuery : mix(empty, kAttended, tint(share)));
  }
  if (matrix)
    fill(image, x0 - kMargin / 2, y0 + query_row * zoom, kMargin / 2 - 2,
         std::min(std::max<int64_t>(zoom, 3), (grid.rows - query_row) * zoom), kQuery);
}
}  // namespace

Image pattern_image(const AttentionPattern& pattern, const PictureSpec& spec) {
  WEFT_CHECK(spec.n.queries >= 1 && spec.n.keys >= 1,
             "a picture needs at least one query and one key, got ", spec.n.queries, " and ",
             spec.n.keys);
  WEFT_CHECK(spec.position >= 0 && spec.position < spec.n.queries,
             "position must be between 0 and ", spec.n.queries - 1, ", got ", spec.position);
  const auto field = [&](const FieldLayout& layout) {
    return field_panel(pattern, {spec.head, spec.position, spec.n, layout});
  };
  std::vector<Panel> panels = {field(FieldLayout::in_rows(spec.n.keys, spec.row_length))};
  if (!spec.grid.empty()) panels.push_back(field(FieldLayout::image(spec.n.keys, spec.grid)));
  panels.push_back(matrix_panel(pattern, spec));
  int64_t width = kMargin, height = 0;
  for (const Panel& panel : panels) {
    width += panel.grid.columns * panel.zoom + kMargin;
    height = std::max(height, panel.grid.rows * panel.zoom);
  }
  Image image(width, height + 2 * kMargin);
  fill(image, 0, 0, image.width, image.height, kBackground);
  int64_t x = kMargin;
  for (const Panel& panel : panels) {
    draw(image, x, kMargin, panel);
    x += panel.grid.columns * panel.zoom + kMargin;
  }
  return image;
}

void write_pattern_image(const std::string& path, const AttentionPattern& pattern,
                         const PictureSpec& spec) {
  write_png(path, pattern_image(pattern, spec));
}
}  // namespace weft
