// SPDX-License-Identifier: MIT
// The distance to a key is 0 or a power of two: a number with at most one bit set.
#include "tests/exercises/01_picture/exercise.h"

bool attends(int64_t i, int64_t j) {
  const int64_t distance = i - j;
  return distance >= 0 && (distance & (distance - 1)) == 0;
}
