// SPDX-License-Identifier: MIT
// strided: every l-th position back, l = `stride`. Written in rows of l, the sequence is an image,
// and a query sees the column above it, its residue class mod l:
//   S_i = {j : j <= i, (i - j) mod l = 0}      A^(2) of arXiv 1904.10509, section 4.3
// Kernels work on tiles of 64 x 64 (query, key) pairs and skip empty ones. Were tiles cut from
// neighbouring positions, only one pair in l would be needed, and while l < 128 no tile below the
// diagonal would be empty. Tiles therefore take the positions column by column: each column is a
// short causal sequence, and its tiles are full below the diagonal.
#include "src/patterns/pattern.h"

#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace weft {
namespace {
class Strided : public AttentionPattern {
 public:
  explicit Strided(int64_t l)
      : l_(l) {}

  std::string name() const override { return str("strided(stride ", l_, ")"); }

  // S_i three times: as a predicate, as runs of keys, and as a band for the kernels that know
  // bands.
  bool attends(int, int64_t i, int64_t j) const override { return j <= i && (i - j) % l_ == 0; }

  void key_runs(int, int64_t i, std::vector<KeyRun>& runs) const override {
    runs.push_back({i % l_, i + 1, l_});
  }

  Band band(int, int64_t n) const override {
    if (n % l_ != 0) return {};
    return {static_cast<int32_t>(l_), static_cast<int32_t>(n / l_), 0};
  }

  // Slot: the place of position i in the order of the tiles. Columns of ceil(n / l) positions come
  // first, then those of floor(n / l), the first of which starts on a tile.
  int64_t query_slot(int, int64_t i, int64_t n) const override {
    const int64_t column = i % l_, row = i / l_, shorter = n / l_, longer_columns = n % l_;
    if (column < longer_columns) return start_of(column, shorter + 1) + row;
    const int64_t longer_end = start_of(longer_columns, shorter + 1);
    return tile_ceil(longer_end) + start_of(column - longer_columns, shorter) + row;
  }

 private:
  // Slot of the first position of a column among columns of one length. They lie one behind the
  // other, or each starts on a tile (several to a tile where they are short): whichever needs fewer
  // tiles.
  static int64_t start_of(int64_t column, int64_t length) {
    if (!starts_on_tile(length)) return column * length;
    const int64_t a_tile = length == 0 ? 1 : kTile / length;  // whole columns that fit into a tile
    return a_tile > 0 ? column / a_tile * kTile + column % a_tile * (kTile / a_tile)
                      : column * tile_ceil(length);
  }

  // Tiles of a column of 64 a + b positions, 0 < b < 64. On a tile: (a + 1) (a + 2) / 2, or 1 /
  // floor(64 / b) for a = 0. One behind the other, it starts at any multiple of g = gcd(b, 64), and
  // the tiles on the diagonal are shared: a (a + 1) / 2 + (a + 1) (b - g) / 64 + a + b / 64 in the
  // mean. Compared times 64.
  static bool starts_on_tile(int64_t length) {
    const int64_t a = length / kTile, b = length % kTile;
    if (b == 0) return true;
    const int64_t behind = kTile * a * (a + 1) / 2 + (a + 1) * (b - std::gcd(b, kTile)) + length;
    return a > 0 ? kTile * (a + 1) * (a + 2) / 2 < behind : kTile < behind * (kTile / b);
  }

  int64_t l_;
};
}  // namespace

PatternKind strided_pattern() {
  return {"strided", "every `stride`-th position back, the own one included", reads({"stride"}),
          [](const PatternSpec& spec, int) {
            check_pattern_field("strided", "stride", spec.stride);
            return std::make_unique<Strided>(spec.stride);
          }};
}
}  // namespace weft
