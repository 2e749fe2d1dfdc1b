// SPDX-License-Identifier: MIT
// Wrong: it stops at the largest distance of the picture.
// Rejected with: beyond the picture: query 16 must see key 0
#include "tests/exercises/01_picture/exercise.h"

bool attends(int64_t i, int64_t j) {
  const int64_t distance = i - j;
  return distance == 0 || distance == 1 || distance == 2 || distance == 4 || distance == 8;
}
