// SPDX-License-Identifier: MIT
// An order of pixels under a bound of waste.
#include "tests/exercises/08_slot_order/exercise.h"

int64_t slot(const Image& image, int64_t i) {
  return i;  // yours: row by row, a tile has pixels of eight patches
}
