// SPDX-License-Identifier: MIT
// Connectivity matrices and receptive fields as text and as images.
#include "train/picture.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

constexpr std::int64_t kPanel = 768;  // pixels: the longest side of a panel
constexpr std::int64_t kMargin = 24;
constexpr Rgb kAttended{31, 90, 166}, kEmptyCell{255, 255, 255}, kQuery{200, 55, 20}, kUnseen{232, 232, 232},
    kBackground{250, 250, 250}, kFrame{120, 120, 120}, kQueryRow{250, 225, 205};

Rgb mix(const Rgb& a, const Rgb& b, double t) {
  const auto channel = [&](std::uint8_t x, std::uint8_t y) {
    return static_cast<std::uint8_t>(std::lround(x + (y - x) * t));
  };
  return {channel(a.red, b.red), channel(a.green, b.green), channel(a.blue, b.blue)};
}

// Thin lines of a sparse pattern stay visible when many positions share a pixel.
double tint(double share) { return share == 0 ? 0 : 0.3 + 0.7 * std::sqrt(share); }

void fill(Image& image, std::int64_t x, std::int64_t y, std::int64_t w, std::int64_t h, const Rgb& colour) {
  for (std::int64_t row = y; row < y + h; ++row)
    for (std::int64_t column = x; column < x + w; ++column) image.at(column, row) = colour;
}

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

void draw_receptive_field(Image& image, std::int64_t x0, std::int64_t y0, const Scale& scale,
                          const AttentionPattern& pattern, const PictureSpec& spec) {
  std::vector<std::int32_t> keys;
  pattern.keys_of(spec.head, spec.position, spec.length, keys);
  std::vector<char> seen(static_cast<std::size_t>(spec.length), 0);
  for (const std::int32_t key : keys) seen[static_cast<std::size_t>(key)] = 1;
  const std::int64_t rows = (spec.length + spec.row_length - 1) / spec.row_length, f = scale.factor;
  for (std::int64_t top = 0; top < rows; top += f)
    for (std::int64_t left = 0; left < spec.row_length; left += f) {
      std::int64_t positions = 0, attended = 0;
      bool own = false;
      for (std::int64_t r = top; r < std::min(top + f, rows); ++r)
        for (std::int64_t c = left; c < std::min(left + f, spec.row_length); ++c) {
          const std::int64_t t = r * spec.row_length + c;
          if (t >= spec.length) continue;
          ++positions;
          attended += seen[static_cast<std::size_t>(t)];
          own = own || t == spec.position;
        }
      if (positions == 0) continue;
      const double share = static_cast<double>(attended) / static_cast<double>(positions);
      const std::int64_t gap = scale.zoom > 3 ? 1 : 0, side = scale.zoom - gap;
      fill(image, x0 + left / f * scale.zoom, y0 + top / f * scale.zoom, side, side,
           own ? kQuery : mix(kUnseen, kAttended, tint(share)));
    }
}

void draw_connectivity(Image& image, std::int64_t x0, std::int64_t y0, const AttentionPattern& pattern,
                       const PictureSpec& spec) {
  const ConnectivityGrid grid = connectivity(pattern, spec.head, spec.length, kPanel);
  const std::int64_t zoom = std::max<std::int64_t>(1, kPanel / grid.cells), side = grid.cells * zoom;
  const std::int64_t query_row = Cells(spec.length, grid.cells).of[static_cast<std::size_t>(spec.position)];
  fill(image, x0 - 1, y0 - 1, side + 2, side + 2, kFrame);
  for (std::int64_t r = 0; r < grid.cells; ++r)
    for (std::int64_t c = 0; c < grid.cells; ++c)
      fill(image, x0 + c * zoom, y0 + r * zoom, zoom, zoom,
           mix(r == query_row ? kQueryRow : kEmptyCell, kAttended, tint(grid.share[r * grid.cells + c])));
  fill(image, x0 - kMargin / 2, y0 + query_row * zoom, kMargin / 2 - 2, std::max<std::int64_t>(zoom, 3),
       kQuery);
}

}  // namespace

ConnectivityGrid connectivity(const AttentionPattern& pattern, int head, std::int64_t n,
                              std::int64_t max_cells) {
  ConnectivityGrid grid;
  grid.cells = std::min(n, max_cells);
  const Cells cells(n, grid.cells);
  std::vector<std::int64_t> attended(static_cast<std::size_t>(grid.cells * grid.cells), 0);
  std::vector<KeyRun> runs;
  for (std::int64_t i = 0; i < n; ++i) {
    runs.clear();
    pattern.key_runs(head, i, runs);
    std::int64_t* row = attended.data() + cells.of[i] * grid.cells;
    for (const KeyRun& run : runs)
      for (std::int64_t j = run.begin; j < run.end;) {
        const std::int64_t cell = cells.of[j];
        const std::int64_t count = (std::min(run.end, cells.start[cell + 1]) - j + run.step - 1) / run.step;
        row[cell] += count;
        j += count * run.step;
      }
  }
  for (std::int64_t r = 0; r < grid.cells; ++r)
    for (std::int64_t c = 0; c < grid.cells; ++c) {
      const std::int64_t pairs =
          (cells.start[r + 1] - cells.start[r]) * (cells.start[c + 1] - cells.start[c]);
      grid.share.push_back(static_cast<double>(attended[r * grid.cells + c]) / static_cast<double>(pairs));
    }
  return grid;
}

std::string connectivity_text(const AttentionPattern& pattern, int head, std::int64_t n,
                              std::int64_t max_cells) {
  const ConnectivityGrid grid = connectivity(pattern, head, n, max_cells);
  const std::string growing = ":-=+*";
  std::string text;
  for (std::size_t k = 0; k < grid.share.size(); ++k) {
    const double share = grid.share[k];
    const auto level = static_cast<std::size_t>(share * static_cast<double>(growing.size()));
    text += share == 0 ? '.' : share == 1 ? '#' : growing[level];
    if ((k + 1) % static_cast<std::size_t>(grid.cells) == 0) text += '\n';
  }
  return text;
}

Image pattern_image(const AttentionPattern& pattern, const PictureSpec& spec) {
  WEFT_CHECK(spec.length >= 1, "a picture needs at least one position, got ", spec.length);
  WEFT_CHECK(spec.position >= 0 && spec.position < spec.length, "position must be between 0 and ",
             spec.length - 1, ", got ", spec.position);
  WEFT_CHECK(spec.row_length >= 1, "rows of at least one position, got ", spec.row_length);
  const std::int64_t columns = std::min(spec.row_length, spec.length);
  const std::int64_t rows = (spec.length + columns - 1) / columns;
  const Scale scale(std::max(rows, columns));
  const std::int64_t cells = std::min(spec.length, kPanel);
  const std::int64_t matrix = cells * std::max<std::int64_t>(1, kPanel / cells);
  const std::int64_t field_width = scale.pixels(columns), field_height = scale.pixels(rows);
  Image image(field_width + matrix + 3 * kMargin, std::max(field_height, matrix) + 2 * kMargin);
  fill(image, 0, 0, image.width, image.height, kBackground);
  PictureSpec clipped = spec;
  clipped.row_length = columns;
  draw_receptive_field(image, kMargin, kMargin, scale, pattern, clipped);
  draw_connectivity(image, field_width + 2 * kMargin, kMargin, pattern, clipped);
  return image;
}

}  // namespace weft
