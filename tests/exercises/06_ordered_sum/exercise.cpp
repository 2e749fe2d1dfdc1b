// SPDX-License-Identifier: MIT
// A sum whose bits depend on the numbers alone.
#include "tests/exercises/06_ordered_sum/exercise.h"

float ordered_sum(const Numbers& x, Team& team) {
  float sum = 0;
  team.run([&](int worker) {  // yours: this adds in the order in which workers come
    for (int64_t i = worker; i < x.size(); i += team.size()) sum += x[i];
  });
  return sum;
}
