// SPDX-License-Identifier: MIT
#include "train/inspect/picture.h"

#include "src/files/files.h"
#include "src/files/npy.h"
#include "src/patterns/pattern.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ostream>
#include <png.h>
#include <string>
#include <vector>

namespace weft {
static_assert(sizeof(Rgb) == 3, "libpng reads pixels of three bytes");

Rgb mix(const Rgb& a, const Rgb& b, double t) {
  const auto channel = [&](uint8_t x, uint8_t y) {
    return static_cast<uint8_t>(std::lround(x + (y - x) * t));
  };
  return {channel(a.red, b.red), channel(a.green, b.green), channel(a.blue, b.blue)};
}

void fill(Image& image, int64_t x, int64_t y, int64_t w, int64_t h, const Rgb& colour) {
  for (int64_t row = y; row < y + h; ++row)
    for (int64_t column = x; column < x + w; ++column) image.at(column, row) = colour;
}

namespace {
constexpr int64_t kPanel = 768;  // pixels: the longest side of a panel
constexpr int64_t kMargin = 24;
constexpr Rgb kAttended{31, 90, 166}, kEmptyCell{255, 255, 255}, kQuery{200, 55, 20},
    kUnseen{232, 232, 232}, kBackground{250, 250, 250}, kFrame{120, 120, 120},
    kQueryRow{250, 225, 205};

// Thin lines of a sparse pattern stay visible when many positions share a pixel.
double tint(double share) { return share == 0 ? 0 : 0.3 + 0.7 * std::sqrt(share); }

// Splits n positions into cells: starts of the cells (cells + 1 of them), and the cell of each
// position.
struct Cells {
  std::vector<int64_t> start, of;

  Cells(int64_t n, int64_t cells)
      : of(n) {
    for (int64_t c = 0; c <= cells; ++c) start.push_back(c * n / cells);
    for (int64_t c = 0; c < cells; ++c)
      std::fill(of.begin() + start[c], of.begin() + start[c + 1], c);
  }
};

int64_t cells_of(int64_t n, int64_t longest, int64_t max_cells) {
  return longest <= max_cells ? n : std::max<int64_t>(1, n * max_cells / longest);
}

char character_of(double share) {
  constexpr const char* kGrowing = ":-=+*";
  return share == 0 ? '.' : share == 1 ? '#' : kGrowing[static_cast<int>(share * 5)];
}

// A line a row of cells.
std::string text_of(const ConnectivityGrid& grid) {
  std::string text, line;
  for (std::size_t k = 0; k < grid.share.size(); ++k) {
    const double share = grid.share[k];
    line += static_cast<int64_t>(k) == grid.own ? 'O' : share < 0 ? ' ' : character_of(share);
    if ((k + 1) % static_cast<std::size_t>(grid.columns) != 0) continue;
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
    line.clear();
  }
  return text;
}

// A receptive field whose cells cover factor x factor keys.
ConnectivityGrid field_grid(const AttentionPattern& pattern, const FieldSpec& spec,
                            int64_t factor) {
  std::vector<int32_t> keys;
  pattern.keys_of(spec.head, spec.position, spec.n.keys, keys);
  std::vector<char> seen(spec.n.keys, 0);
  for (const int32_t key : keys) seen[key] = 1;
  const int64_t height = spec.layout.height, width = spec.layout.columns();
  const int64_t own = spec.n.queries == spec.n.keys ? spec.position : -1;
  ConnectivityGrid grid;
  grid.rows = (height + factor - 1) / factor;
  grid.columns = (width + factor - 1) / factor;
  for (int64_t cell = 0; cell < grid.rows * grid.columns; ++cell) {
    const int64_t top = cell / grid.columns * factor, left = cell % grid.columns * factor;
    int64_t count = 0, attended = 0;
    for (int64_t r = top; r < std::min(top + factor, height); ++r)
      for (int64_t c = left; c < std::min(left + factor, width); ++c) {
        const int64_t key = spec.layout.key_at(r, c);
        if (key < 0) continue;
        ++count;
        attended += seen[key];
        if (key == own) grid.own = cell;
      }
    grid.share.push_back(count == 0 ? -1
                                    : static_cast<double>(attended) / static_cast<double>(count));
  }
  return grid;
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
  panel.query_row = Cells(spec.n.queries, panel.grid.rows).of[spec.position];
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

ConnectivityGrid connectivity(const AttentionPattern& pattern, int head, Lengths n,
                              int64_t max_cells) {
  const int64_t longest = std::max(n.queries, n.keys);
  ConnectivityGrid grid{cells_of(n.queries, longest, max_cells),
                        cells_of(n.keys, longest, max_cells)};
  const Cells rows(n.queries, grid.rows), columns(n.keys, grid.columns);
  std::vector<int64_t> attended(grid.rows * grid.columns, 0);
  std::vector<KeyRun> runs;
  for (int64_t i = 0; i < n.queries; ++i) {
    runs.clear();
    pattern.key_runs(head, i, runs);
    int64_t* row = attended.data() + rows.of[i] * grid.columns;
    for (const KeyRun& run : runs)
      for (int64_t j = run.begin; j < std::min(run.end, n.keys);) {
        const int64_t cell = columns.of[j];
        const int64_t end = std::min(run.end, columns.start[cell + 1]);
        const int64_t count = KeyRun{j, end, run.step}.size();
        row[cell] += count;
        j += count * run.step;
      }
  }
  for (int64_t r = 0; r < grid.rows; ++r)
    for (int64_t c = 0; c < grid.columns; ++c) {
      const int64_t pairs =
          (rows.start[r + 1] - rows.start[r]) * (columns.start[c + 1] - columns.start[c]);
      grid.share.push_back(static_cast<double>(attended[r * grid.columns + c]) /
                           static_cast<double>(pairs));
    }
  return grid;
}

std::string connectivity_text(const AttentionPattern& pattern, int head, Lengths n,
                              int64_t max_cells) {
  return text_of(connectivity(pattern, head, n, max_cells));
}

FieldLayout FieldLayout::in_rows(int64_t keys, int64_t width) {
  WEFT_CHECK(width >= 1, "rows of at least one position, got ", width);
  const int64_t columns = std::min(width, keys);
  return {keys, (keys + columns - 1) / columns, columns, 1};
}

FieldLayout FieldLayout::image(int64_t keys, const std::vector<int64_t>& grid) {
  bool good = grid.size() == 2 || grid.size() == 3;
  double places = 1;
  for (const int64_t extent : grid) {
    good = good && extent >= 1 && extent <= kMaxPositions;
    places *= static_cast<double>(extent);
  }
  if (!good) fail("--grid takes H,W or H,W,C with sizes of at least 1, for example 32,32,3");
  if (places < static_cast<double>(keys) || places > static_cast<double>(kMaxPositions))
    fail("--grid has ", static_cast<int64_t>(places), " places for ", keys,
         " positions: H * W * C must be at least that, and at most ", kMaxPositions);
  return {keys, grid[0], grid[1], grid.size() == 3 ? grid[2] : 1};
}

int64_t FieldLayout::key_at(int64_t row, int64_t column) const {
  const int64_t channel = column / (width + 1), x = column % (width + 1);
  if (x == width) return -1;  // between two channels
  const int64_t key = (row * width + x) * channels + channel;
  return key < keys ? key : -1;
}

std::string field_text(const AttentionPattern& pattern, const FieldSpec& spec, int64_t max_cells) {
  const int64_t longest = std::max(spec.layout.height, spec.layout.columns());
  return text_of(field_grid(pattern, spec, (longest + max_cells - 1) / max_cells));
}

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

std::string png_bytes(const Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = PNG_FORMAT_RGB;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::string encoded(bytes, '\0');
  if (!png_image_write_to_memory(&png, encoded.data(), &bytes, 0, image.pixels.data(), 0, nullptr))
    fail("libpng cannot encode an image of ", image.width, " x ", image.height,
         " pixels: ", png.message);
  encoded.resize(bytes);
  return encoded;
}

void write_png(const std::string& path, const Image& image) {
  write_whole_file(path, [bytes = png_bytes(image)](std::ostream& out) { out << bytes; });
}

void write_mask_npy(const std::string& path, const AttentionPattern& pattern, int head, Lengths n) {
  for (const int64_t length : {n.queries, n.keys})
    if (length < 1 || length > kMaxMaskLength)
      fail(
          "a mask file holds one byte for each of length * length pairs: length must be between 1 "
          "and ",
          kMaxMaskLength, ", got ", length, "; choose a shorter --length");
  NewFile file(path, Devices::written);
  std::string row = npy_header("|b1", {n.queries, n.keys});
  file.write(row.data(), row.size());
  std::vector<int32_t> keys;
  for (int64_t i = 0; i < n.queries; ++i) {
    keys.clear();
    pattern.keys_of(head, i, n.keys, keys);
    row.assign(n.keys, '\0');
    for (const int32_t j : keys) row[j] = 1;
    file.write(row.data(), row.size());
  }
  file.commit();
}
}  // namespace weft
