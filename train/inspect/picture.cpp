// SPDX-License-Identifier: MIT
#include "train/inspect/picture.h"

#include "src/files/files.h"
#include "src/files/npy.h"
#include "src/parts/parts.h"
#include "src/patterns/pattern.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

namespace weft {
namespace {
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

std::string field_text(const AttentionPattern& pattern, const FieldSpec& spec, int64_t max_cells) {
  const int64_t longest = std::max(spec.layout.height, spec.layout.columns());
  return text_of(field_grid(pattern, spec, (longest + max_cells - 1) / max_cells));
}

namespace {
WritePicture& writer() {
  static WritePicture function = nullptr;
  return function;
}
}  // namespace

void set_picture_writer(WritePicture function) { writer() = function; }

WritePicture picture_writer() {
  register_parts();
  return writer();
}

void check_mask_lengths(Lengths n) {
  for (const int64_t length : {n.queries, n.keys})
    if (length < 1 || length > kMaxMaskLength)
      fail(
          "a mask file holds one byte for each of length * length pairs: length must be between 1 "
          "and ",
          kMaxMaskLength, ", got ", length, "; choose a shorter --length");
}

void write_mask_npy(const std::string& path, const AttentionPattern& pattern, int head, Lengths n) {
  check_mask_lengths(n);
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
