// SPDX-License-Identifier: MIT
// Wrong: 0 is no power of two, and the own key is forgotten.
// Rejected with: does not see its own key
#include "tests/exercises/01_picture/exercise.h"

bool attends(int64_t i, int64_t j) {
  for (int64_t distance = 1; distance <= i; distance *= 2)
    if (i - j == distance) return true;
  return false;
}
