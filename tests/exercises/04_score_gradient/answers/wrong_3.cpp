// SPDX-License-Identifier: MIT
// Wrong: the mean of dp without the weights.
// Rejected with: the gradients of a row must sum to 0
#include "tests/exercises/04_score_gradient/exercise.h"

#include <cstddef>

Row score_gradient(const Row& p, const Row& dp) {
  double mean = 0;
  for (const double value : dp) mean += value / static_cast<double>(dp.size());
  Row ds;
  for (std::size_t j = 0; j < p.size(); ++j) ds.push_back(p[j] * (dp[j] - mean));
  return ds;
}

double delta(const Row& y, const Row& dy) { return 0; }
