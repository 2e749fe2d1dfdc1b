// SPDX-License-Identifier: MIT
// Connectivity matrices and receptive fields as text and as images.
#include "train/inspect/picture.h"
#include "src/patterns/pattern.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace weft {

Rgb mix(const Rgb& a, const Rgb& b, double t) {
  const auto channel = [&](std::uint8_t x, std::uint8_t y) {
    return static_cast<std::uint8_t>(std::lround(x + (y - x) * t));
  };
  return {channel(a.red, b.red), channel(a.green, b.green), channel(a.blue, b.blue)};
}

void fill(Image& image, std::int64_t x, std::int64_t y, std::int64_t w, std::int64_t h, const Rgb& colour) {
  for (std::int64_t row = y; row < y + h; ++row)
    for (std::int64_t column = x; column < x + w; ++column) image.at(column, row) = colour;
}

namespace {

constexpr std::int64_t kPanel = 768;  // pixels: the longest side of a panel
constexpr std::int64_t kMargin = 24;
constexpr Rgb kAttended{31, 90, 166}, kEmptyCell{255, 255, 255}, kQuery{200, 55, 20}, kUnseen{232, 232, 232},
    kBackground{250, 250, 250}, kFrame{120, 120, 120}, kQueryRow{250, 225, 205};

// Thin lines of a sparse pattern stay visible when many positions share a pixel.
double tint(double share) { return share == 0 ? 0 : 0.3 + 0.7 * std::sqrt(share); }

// Splits n positions into cells: starts of the cells (cells + 1 of them), and the cell of each position.
struct Cells {
  std::vector<std::int64_t> start, of;
  Cells(std::int64_t n, std::int64_t cells) : of(static_cast<std::size_t>(n)) {
    for (std::int64_t c = 0; c <= cells; ++c) start.push_back(c * n / cells);
    for (std::int64_t c = 0; c < cells; ++c) std::fill(of.begin() + start[c], of.begin() + start[c + 1], c);
  }
};

// A panel of kPanel pixels or less: `factor` positions share a pixel, or a position is a square of `zoom`
// pixels.
struct Scale {
  std::int64_t factor = 1, zoom = 1;
  explicit Scale(std::int64_t longest)
      : factor((longest + kPanel - 1) / kPanel), zoom(std::max<std::int64_t>(1, kPanel / longest)) {}
  std::int64_t pixels(std::int64_t count) const { return (count + factor - 1) / factor * zoom; }
};

std::int64_t cells_of(std::int64_t n, std::int64_t longest, std::int64_t max_cells) {
  return longest <= max_cells ? n : std::max<std::int64_t>(1, n * max_cells / longest);
}

char character_of(double share) {
  constexpr const char* kGrowing = ":-=+*";
  return share == 0 ? '.' : share == 1 ? '#' : kGrowing[static_cast<int>(share * 5)];
}

// A receptive field whose cells cover factor x factor keys.
struct FieldGrid {
  std::int64_t rows = 0, columns = 0, own = -1;  // own: the cell of the query itself; -1: it is no key
  std::vector<double> share;                     // (rows, columns): attended keys / all; -1: there are none
};

FieldGrid field_grid(const AttentionPattern& pattern, const FieldSpec& spec, std::int64_t factor) {
  std::vector<std::int32_t> keys;
  pattern.keys_of(spec.head, spec.position, spec.n.keys, keys);
  std::vector<char> seen(static_cast<std::size_t>(spec.n.keys), 0);
  for (const std::int32_t key : keys) seen[static_cast<std::size_t>(key)] = 1;
  const std::int64_t height = spec.layout.height, width = spec.layout.columns();
  const std::int64_t own = spec.n.queries == spec.n.keys ? spec.position : -1;
  FieldGrid grid;
  grid.rows = (height + factor - 1) / factor;
  grid.columns = (width + factor - 1) / factor;
  for (std::int64_t cell = 0; cell < grid.rows * grid.columns; ++cell) {
    const std::int64_t top = cell / grid.columns * factor, left = cell % grid.columns * factor;
    std::int64_t count = 0, attended = 0;
    for (std::int64_t r = top; r < std::min(top + factor, height); ++r)
      for (std::int64_t c = left; c < std::min(left + factor, width); ++c) {
        const std::int64_t key = spec.layout.key_at(r, c);
        if (key < 0) continue;
        ++count;
        attended += seen[static_cast<std::size_t>(key)];
        if (key == own) grid.own = cell;
      }
    grid.share.push_back(count == 0 ? -1 : static_cast<double>(attended) / static_cast<double>(count));
  }
  return grid;
}

struct Panel {
  std::int64_t width = 0, height = 0;
  std::function<void(Image&, std::int64_t x, std::int64_t y)> draw;
};

Panel field_panel(const AttentionPattern& pattern, const FieldSpec& spec) {
  const Scale scale(std::max(spec.layout.height, spec.layout.columns()));
  const auto draw = [&pattern, spec, scale](Image& image, std::int64_t x0, std::int64_t y0) {
    const FieldGrid grid = field_grid(pattern, spec, scale.factor);
    const std::int64_t side = scale.zoom - (scale.zoom > 3 ? 1 : 0);
    for (std::int64_t cell = 0; cell < grid.rows * grid.columns; ++cell) {
      const double share = grid.share[static_cast<std::size_t>(cell)];
      if (share < 0) continue;
      fill(image, x0 + cell % grid.columns * scale.zoom, y0 + cell / grid.columns * scale.zoom, side, side,
           cell == grid.own ? kQuery : mix(kUnseen, kAttended, tint(share)));
    }
  };
  return {scale.pixels(spec.layout.columns()), scale.pixels(spec.layout.height), draw};
}

Panel matrix_panel(const AttentionPattern& pattern, const PictureSpec& spec) {
  const std::int64_t longest = std::max(spec.n.queries, spec.n.keys);
  const std::int64_t rows = cells_of(spec.n.queries, longest, kPanel),
                     columns = cells_of(spec.n.keys, longest, kPanel);
  const std::int64_t zoom = std::max<std::int64_t>(1, kPanel / std::max(rows, columns));
  const auto draw = [&pattern, spec, zoom](Image& image, std::int64_t x0, std::int64_t y0) {
    const ConnectivityGrid grid = connectivity(pattern, spec.head, spec.n, kPanel);
    const std::int64_t query_row =
        Cells(spec.n.queries, grid.rows).of[static_cast<std::size_t>(spec.position)];
    fill(image, x0 - 1, y0 - 1, grid.columns * zoom + 2, grid.rows * zoom + 2, kFrame);
    for (std::int64_t r = 0; r < grid.rows; ++r)
      for (std::int64_t c = 0; c < grid.columns; ++c)
        fill(image, x0 + c * zoom, y0 + r * zoom, zoom, zoom,
             mix(r == query_row ? kQueryRow : kEmptyCell, kAttended,
                 tint(grid.share[static_cast<std::size_t>(r * grid.columns + c)])));
    fill(image, x0 - kMargin / 2, y0 + query_row * zoom, kMargin / 2 - 2,
         std::min(std::max<std::int64_t>(zoom, 3), (grid.rows - query_row) * zoom), kQuery);
  };
  return {columns * zoom, rows * zoom, draw};
}

}  // namespace

ConnectivityGrid connectivity(const AttentionPattern& pattern, int head, Lengths n, std::int64_t max_cells) {
  const std::int64_t longest = std::max(n.queries, n.keys);
  ConnectivityGrid grid{cells_of(n.queries, longest, max_cells), cells_of(n.keys, longest, max_cells), {}};
  const Cells rows(n.queries, grid.rows), columns(n.keys, grid.columns);
  std::vector<std::int64_t> attended(static_cast<std::size_t>(grid.rows * grid.columns), 0);
  std::vector<KeyRun> runs;
  for (std::int64_t i = 0; i < n.queries; ++i) {
    runs.clear();
    pattern.key_runs(head, i, runs);
    std::int64_t* row = attended.data() + rows.of[static_cast<std::size_t>(i)] * grid.columns;
    for (const KeyRun& run : runs)
      for (std::int64_t j = run.begin; j < std::min(run.end, n.keys);) {
        const std::int64_t cell = columns.of[static_cast<std::size_t>(j)];
        const std::int64_t end = std::min(run.end, columns.start[static_cast<std::size_t>(cell) + 1]);
        const std::int64_t count = KeyRun{j, end, run.step}.size();
        row[cell] += count;
        j += count * run.step;
      }
  }
  for (std::size_t r = 0; r < static_cast<std::size_t>(grid.rows); ++r)
    for (std::size_t c = 0; c < static_cast<std::size_t>(grid.columns); ++c) {
      const std::int64_t pairs =
          (rows.start[r + 1] - rows.start[r]) * (columns.start[c + 1] - columns.start[c]);
      grid.share.push_back(static_cast<double>(attended[r * static_cast<std::size_t>(grid.columns) + c]) /
                           static_cast<double>(pairs));
    }
  return grid;
}

std::string connectivity_text(const AttentionPattern& pattern, int head, Lengths n, std::int64_t max_cells) {
  const ConnectivityGrid grid = connectivity(pattern, head, n, max_cells);
  std::string text;
  for (std::size_t k = 0; k < grid.share.size(); ++k) {
    text += character_of(grid.share[k]);
    if ((k + 1) % static_cast<std::size_t>(grid.columns) == 0) text += '\n';
  }
  return text;
}

FieldLayout FieldLayout::in_rows(std::int64_t keys, std::int64_t width) {
  WEFT_CHECK(width >= 1, "rows of at least one position, got ", width);
  const std::int64_t columns = std::min(width, keys);
  return {keys, (keys + columns - 1) / columns, columns, 1};
}

FieldLayout FieldLayout::image(std::int64_t keys, const std::vector<std::int64_t>& grid) {
  bool good = grid.size() == 2 || grid.size() == 3;
  double places = 1;
  for (const std::int64_t extent : grid) {
    good = good && extent >= 1 && extent <= kMaxPositions;
    places *= static_cast<double>(extent);
  }
  if (!good) fail("--grid takes H,W or H,W,C with sizes of at least 1, for example 32,32,3");
  if (places < static_cast<double>(keys) || places > static_cast<double>(kMaxPositions))
    fail(str("--grid has ", static_cast<std::int64_t>(places), " places for ", keys,
             " positions: H * W * C must be at least that, and at most ", kMaxPositions));
  return {keys, grid[0], grid[1], grid.size() == 3 ? grid[2] : 1};
}

std::int64_t FieldLayout::key_at(std::int64_t row, std::int64_t column) const {
  const std::int64_t channel = column / (width + 1), x = column % (width + 1);
  if (x == width) return -1;  // between two channels
  const std::int64_t key = (row * width + x) * channels + channel;
  return key < keys ? key : -1;
}

std::string field_text(const AttentionPattern& pattern, const FieldSpec& spec, std::int64_t max_cells) {
  const std::int64_t longest = std::max(spec.layout.height, spec.layout.columns());
  const FieldGrid grid = field_grid(pattern, spec, (longest + max_cells - 1) / max_cells);
  std::string text, line;
  for (std::size_t k = 0; k < grid.share.size(); ++k) {
    const double share = grid.share[k];
    line += static_cast<std::int64_t>(k) == grid.own ? 'O' : share < 0 ? ' ' : character_of(share);
    if ((k + 1) % static_cast<std::size_t>(grid.columns) != 0) continue;
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
    line.clear();
  }
  return text;
}

Image pattern_image(const AttentionPattern& pattern, const PictureSpec& spec) {
  WEFT_CHECK(spec.n.queries >= 1 && spec.n.keys >= 1, "a picture needs at least one query and one key, got ",
             spec.n.queries, " and ", spec.n.keys);
  WEFT_CHECK(spec.position >= 0 && spec.position < spec.n.queries, "position must be between 0 and ",
             spec.n.queries - 1, ", got ", spec.position);
  const auto field = [&](const FieldLayout& layout) {
    return field_panel(pattern, {spec.head, spec.position, spec.n, layout});
  };
  std::vector<Panel> panels = {field(FieldLayout::in_rows(spec.n.keys, spec.row_length))};
  if (!spec.grid.empty()) panels.push_back(field(FieldLayout::image(spec.n.keys, spec.grid)));
  panels.push_back(matrix_panel(pattern, spec));
  std::int64_t width = kMargin, height = 0;
  for (const Panel& panel : panels) {
    width += panel.width + kMargin;
    height = std::max(height, panel.height);
  }
  Image image(width, height + 2 * kMargin);
  fill(image, 0, 0, image.width, image.height, kBackground);
  std::int64_t x = kMargin;
  for (const Panel& panel : panels) {
    panel.draw(image, x, kMargin);
    x += panel.width + kMargin;
  }
  return image;
}

}  // namespace weft
