// SPDX-License-Identifier: MIT
// Wrong: the diagonal of the Jacobian alone: a score also lowers the weights of the other keys.
// Rejected with: the gradients of a row must sum to 0
#include "tests/exercises/04_score_gradient/exercise.h"

#include <cstddef>

Row score_gradient(const Row& p, const Row& dp) {
  Row ds;
  for (std::size_t j = 0; j < p.size(); ++j) ds.push_back(p[j] * (1 - p[j]) * dp[j]);
  return ds;
}

double delta(const Row& y, const Row& dy) { return 0; }
