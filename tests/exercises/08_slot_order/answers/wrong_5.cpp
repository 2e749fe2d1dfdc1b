// SPDX-License-Identifier: MIT
// Wrong: a tile for each patch of a square grid: most of the tiles of a tall image are empty.
// Rejected with: no tile is empty
#include "tests/exercises/08_slot_order/exercise.h"

#include <algorithm>

int64_t slot(const Image& image, int64_t i) {
  const int64_t row = i / image.width, column = i % image.width,
                patches_in_a_row = (std::max(image.width, image.height) + kPatch - 1) / kPatch,
                patch = row / kPatch * patches_in_a_row + column / kPatch;
  return patch * kTileSlots + row % kPatch * kPatch + column % kPatch;
}
