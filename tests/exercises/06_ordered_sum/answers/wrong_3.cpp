// SPDX-License-Identifier: MIT
// Wrong: one worker does it all: the bits are right, and the others wait.
// Rejected with: one worker read
#include "tests/exercises/06_ordered_sum/exercise.h"

float ordered_sum(const Numbers& x, Team& team) {
  float sum = 0;
  for (int64_t i = 0; i < x.size(); ++i) sum += x[i];
  return sum;
}
