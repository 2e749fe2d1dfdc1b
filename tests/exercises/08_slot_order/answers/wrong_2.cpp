// SPDX-License-Identifier: MIT
// Wrong: the width of a cut image is rounded down: its last patches take the slots of the next row.
// Rejected with: have the same slot
#include "tests/exercises/08_slot_order/exercise.h"

int64_t slot(const Image& image, int64_t i) {
  const int64_t row = i / image.width, column = i % image.width,
                patch = row / kPatch * (image.width / kPatch) + column / kPatch;
  return patch * kTileSlots + row % kPatch * kPatch + column % kPatch;
}
