// SPDX-License-Identifier: MIT
// Wrong: a piece for each worker: the order is fixed, but the pieces depend on the team.
// Rejected with: a team of 2 got
#include "tests/exercises/06_ordered_sum/exercise.h"

float ordered_sum(const Numbers& x, Team& team) {
  std::vector<float> sums(team.size());
  team.run([&](int worker) {
    const int64_t begin = x.size() * worker / team.size(),
                  end = x.size() * (worker + 1) / team.size();
    for (int64_t i = begin; i < end; ++i) sums[worker] += x[i];
  });
  float sum = 0;
  for (const float of_worker : sums) sum += of_worker;
  return sum;
}
