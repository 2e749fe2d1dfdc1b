// SPDX-License-Identifier: MIT
// Wrong: the two distances of the lower left corner are read as a stride of four.
// Rejected with: must not see key
#include "tests/exercises/01_picture/exercise.h"

bool attends(int64_t i, int64_t j) {
  const int64_t distance = i - j;
  return j <= i && (distance <= 2 || distance == 4 || distance % 8 == 0);
}
