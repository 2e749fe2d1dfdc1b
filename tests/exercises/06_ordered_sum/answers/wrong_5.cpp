// SPDX-License-Identifier: MIT
// Wrong: a double makes differences rare, not impossible: its sums depend on their order, too.
// Rejected with: whose workers come in another order
#include "tests/exercises/06_ordered_sum/exercise.h"

float ordered_sum(const Numbers& x, Team& team) {
  double sum = 0;
  team.run([&](int worker) {
    for (int64_t i = worker; i < x.size(); i += team.size()) sum += x[i];
  });
  return static_cast<float>(sum);
}
