// SPDX-License-Identifier: MIT
// Wrong: a column of pixels after the other: a tile has pixels of eight patches again.
// Rejected with: pairs of tiles are executed, 64 are enough
#include "tests/exercises/08_slot_order/exercise.h"

int64_t slot(const Image& image, int64_t i) {
  return i % image.width * image.height + i / image.width;
}
