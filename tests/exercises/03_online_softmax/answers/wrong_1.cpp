// SPDX-License-Identifier: MIT
// Wrong: the sum shrinks, y does not.
// Rejected with: tiles of 1: y[0] must be
#include "tests/exercises/03_online_softmax/exercise.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

void add_tile(State& state, const std::vector<double>& scores,
              const std::vector<std::vector<double>>& v) {
  const double largest = std::max(state.largest, *std::ranges::max_element(scores));
  if (std::isinf(largest)) return;
  state.sum *= std::exp(state.largest - largest);
  state.largest = largest;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    const double p = std::exp(scores[j] - largest);
    state.sum += p;
    for (std::size_t d = 0; d < state.y.size(); ++d) state.y[d] += p * v[j][d];
  }
}

double finish(State& state) {
  if (state.sum == 0) return state.largest;
  for (double& value : state.y) value /= state.sum;
  return state.largest + std::log(state.sum);
}
