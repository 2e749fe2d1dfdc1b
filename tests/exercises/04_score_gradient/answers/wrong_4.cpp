// SPDX-License-Identifier: MIT
// Wrong: delta as the sum of dy, which is right only where all of y is 1.
// Rejected with: your delta is
#include "tests/exercises/04_score_gradient/exercise.h"

#include <cstddef>

Row score_gradient(const Row& p, const Row& dp) {
  double mean = 0;
  for (std::size_t j = 0; j < p.size(); ++j) mean += p[j] * dp[j];
  Row ds;
  for (std::size_t j = 0; j < p.size(); ++j) ds.push_back(p[j] * (dp[j] - mean));
  return ds;
}

double delta(const Row& y, const Row& dy) {
  double sum = 0;
  for (const double value : dy) sum += value;
  return sum;
}
