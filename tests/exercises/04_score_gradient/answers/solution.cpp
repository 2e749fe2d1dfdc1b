// SPDX-License-Identifier: MIT
// The Jacobian of a softmax is diag(p) - p p^T.
#include "tests/exercises/04_score_gradient/exercise.h"

#include <cstddef>

static double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (std::size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
  return sum;
}

Row score_gradient(const Row& p, const Row& dp) {
  const double mean = dot(p, dp);
  Row ds;
  for (std::size_t j = 0; j < p.size(); ++j) ds.push_back(p[j] * (dp[j] - mean));
  return ds;
}

double delta(const Row& y, const Row& dy) { return dot(y, dy); }
