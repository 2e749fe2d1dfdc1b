// SPDX-License-Identifier: MIT
// `inspect --tiles --png`: the matrix of tiles as a labelled picture.
#pragma once

#include "train/inspect/tiles.h"
#include "train/program/png.h"

#include <cstdint>

namespace weft {
// A panel for each pass, side by side: rows are slots of queries, columns slots of keys, and each
// pair has a colour. Where there are too many slots, tiles or groups of tiles have one.
Image tile_image(const PatternView&, const HeadTiles&);

// Where a panel draws what. Each tile, or group of tiles, is a square.
struct TilePanel {
  const TileTables* tables = nullptr;
  int64_t x = 0, y = 0;           // of the upper left corner
  int64_t zoom = 1;               // pixels of a pair; where cells have a colour: of a cell
  int64_t tiles_a_cell = 0;       // a side; 0: pairs have colours
  int64_t rows = 0, columns = 0;  // squares

  int64_t square() const { return tiles_a_cell ? zoom : zoom * tables->edge; }  // pixels

  int64_t pitch() const {
    return square() + (square() < 6 ? 0 : 1);
  }  // with a gap where it is seen

  int64_t width() const { return columns * pitch(); }

  int64_t height() const { return rows * pitch(); }
};

// The panels of tile_image().
std::vector<TilePanel> tile_panels(const PatternView&, const HeadTiles&);

// A tile without a pair, a needed pair of a masked tile, a pair that is computed and masked, a pair
// of a full tile.
inline constexpr Rgb kSkippedColour{226, 226, 226}, kNeededColour{31, 90, 166},
    kWastedColour{255, 176, 84}, kFullColour{12, 132, 96};
}  // namespace weft
