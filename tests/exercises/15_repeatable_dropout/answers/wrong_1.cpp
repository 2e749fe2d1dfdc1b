// SPDX-License-Identifier: MIT
// Wrong: a generator with a state: the mask depends on how often it was asked.
// Rejected with: a recomputed forward pass would be another one
#include "tests/exercises/15_repeatable_dropout/exercise.h"

#include <cstddef>
#include <random>

std::vector<double> dropout(const std::vector<double>& x, int64_t cols, double p,
                            const Place& place) {
  static std::mt19937_64 random(place.seed);
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = random() * 0x1p-64 < p ? 0 : x[i] / (1 - p);
  }
  return y;
}

std::vector<double> dropout_backward(const std::vector<double>& dy, int64_t cols, double p,
                                     const Place& place) {
  return dropout(dy, cols, p, place);
}
