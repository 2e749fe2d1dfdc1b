// SPDX-License-Identifier: MIT
// Wrong: patches lie one behind the other without gaps: after a cut one, each lies in two tiles.
// Rejected with: cut patches: a tile each
#include "tests/exercises/08_slot_order/exercise.h"

#include <algorithm>

int64_t slot(const Image& image, int64_t i) {
  const int64_t row = i / image.width, column = i % image.width, top = row / kPatch * kPatch,
                left = column / kPatch * kPatch, height = std::min(kPatch, image.height - top),
                width = std::min(kPatch, image.width - left);
  const int64_t before = top * image.width + left * height;  // pixels of earlier patches
  return before + (row - top) * width + column - left;
}
