// SPDX-License-Identifier: MIT
// Pictures of an attention pattern: the connectivity matrix (which query sees which key) and the receptive
// field of one position, as in Figure 3 of arXiv 1904.10509. Drawn from key_runs(), so that long sequences
// are cheap.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/pattern.h"

namespace weft {

// The n x n matrix of one head, scaled down to cells x cells. Row r covers queries r * n / cells .. (r + 1) *
// n / cells - 1, columns cover keys in the same way.
struct ConnectivityGrid {
  std::int64_t cells = 0;
  std::vector<double> share;  // (cells, cells): attended pairs of the cell / all its pairs
};
ConnectivityGrid connectivity(const AttentionPattern&, int head, std::int64_t n, std::int64_t max_cells);

// One line a row of cells: '#' everything attended, '.' nothing, ":-=+*" a growing share. With n <= max_cells
// every cell is one pair: '#' or '.'.
std::string connectivity_text(const AttentionPattern&, int head, std::int64_t n, std::int64_t max_cells = 64);

struct Rgb {
  std::uint8_t red = 255, green = 255, blue = 255;
};
struct Image {
  std::int64_t width = 0, height = 0;
  std::vector<Rgb> pixels;  // (height, width)
  Image(std::int64_t w, std::int64_t h) : width(w), height(h), pixels(static_cast<std::size_t>(w * h)) {}
  Rgb& at(std::int64_t x, std::int64_t y) { return pixels[static_cast<std::size_t>(y * width + x)]; }
};

// Two panels side by side. Left: the positions in rows of `row_length`, with `position` dark, the keys it
// sees blue and the others light. Right: the connectivity matrix, the row of `position` marked at its edge.
struct PictureSpec {
  int head = 0;
  std::int64_t length = 0;
  std::int64_t position = 0;
  std::int64_t row_length = 1;
};
Image pattern_image(const AttentionPattern&, const PictureSpec&);

// Files appear whole or not at all; Error when they cannot be written.
void write_png(const std::string& path, const Image&);
// The boolean matrix (n, n), row = query, as .npy (format 1.0, '|b1', C order). At most kMaxMaskLength
// positions.
inline constexpr std::int64_t kMaxMaskLength = 32768;
void write_mask_npy(const std::string& path, const AttentionPattern&, int head, std::int64_t n);

}  // namespace weft
