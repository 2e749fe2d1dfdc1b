// SPDX-License-Identifier: MIT
// Drawings of an attention pattern: the connectivity matrix (which query sees which key) and the
// receptive field of one position, as in Figure 3 of arXiv 1904.10509. Long sequences are cheap.
#pragma once

#include "src/patterns/spec.h"

#include <cstddef>
#include <string>
#include <vector>

namespace weft {
// The matrix of one head, queries x keys, in at most max_cells cells a side. Row r covers queries
// r * n / rows .. (r + 1) * n / rows - 1; columns likewise.
struct ConnectivityGrid {
  int64_t rows = 0, columns = 0;
  // (rows, columns): attended pairs of the cell / all its pairs; -1: none
  std::vector<double> share = {};
  int64_t own = -1;  // of a receptive field: the cell of the query itself
};

ConnectivityGrid connectivity(const AttentionPattern&, int head, Lengths, int64_t max_cells);

// One line a row of cells: '#' everything attended, '.' nothing, ":-=+*" a growing share.
std::string connectivity_text(const AttentionPattern&, int head, Lengths, int64_t max_cells = 64);

// Where the keys lie in a receptive field: in rows of `width`, or as an image with its channels
// side by side.
struct FieldLayout {
  int64_t keys = 0, height = 0, width = 1, channels = 1;

  static FieldLayout in_rows(int64_t keys, int64_t width);
  // grid: H, W or H, W, C. Throws Error unless it has place for all keys.
  static FieldLayout image(int64_t keys, const std::vector<int64_t>& grid);

  int64_t columns() const { return channels * (width + 1) - 1; }

  // The key in this row and column; -1: none.
  int64_t key_at(int64_t row, int64_t column) const;
};

// What one query sees, in that layout. Characters as above, and 'O' for the query itself.
struct FieldSpec {
  int head = 0;
  int64_t position = 0;  // of the query
  Lengths n;
  FieldLayout layout;
};

// Its cells, each of factor x factor keys.
ConnectivityGrid field_grid(const AttentionPattern&, const FieldSpec&, int64_t factor);
std::string field_text(const AttentionPattern&, const FieldSpec&, int64_t max_cells = 64);

// ---- pictures: a part draws them (src/parts/parts.h) ----

// What a picture shows: the receptive field of `position` in rows of `row_length` (the position
// red, the keys that it sees blue), with `grid` the same on an image, and the connectivity matrix
// with the position's row.
struct PictureSpec {
  int head = 0;
  Lengths n;
  int64_t position = 0;
  int64_t row_length = 1;
  std::vector<int64_t> grid = {};  // H, W or H, W, C; empty: none
};

using WritePicture = void (*)(const std::string& path, const AttentionPattern&, const PictureSpec&);
void set_picture_writer(WritePicture);
WritePicture picture_writer();  // null: no part draws pictures

// The boolean matrix (queries, keys) as .npy (format 1.0, '|b1', C order), at most kMaxMaskLength a
// side.
inline constexpr int64_t kMaxMaskLength = 32768;
void check_mask_lengths(Lengths);  // Error unless the matrix may be written
void write_mask_npy(const std::string& path, const AttentionPattern&, int head, Lengths);
}  // namespace weft
