// SPDX-License-Identifier: MIT
// The softmax of one query in one pass over its keys.
#include "tests/exercises/03_online_softmax/exercise.h"

#include <cmath>
#include <cstddef>

void add_tile(State& state, const std::vector<double>& scores,
              const std::vector<std::vector<double>>& v) {
  // Yours. This forgets what earlier tiles left.
  state.sum = 0;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    const double p = std::exp(scores[j]);
    state.sum += p;
    for (std::size_t d = 0; d < state.y.size(); ++d) state.y[d] += p * v[j][d];
  }
}

double finish(State& state) {
  for (double& value : state.y) value /= state.sum;
  return std::log(state.sum);
}
