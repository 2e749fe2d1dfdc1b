// SPDX-License-Identifier: MIT
// Wrong: the distance has no sign, so that later keys are seen, too.
// Rejected with: which comes later
#include "tests/exercises/01_picture/exercise.h"

#include <bit>
#include <cstdlib>

bool attends(int64_t i, int64_t j) {
  const int64_t distance = std::abs(i - j);
  return distance == 0 || std::has_single_bit(static_cast<uint64_t>(distance));
}
