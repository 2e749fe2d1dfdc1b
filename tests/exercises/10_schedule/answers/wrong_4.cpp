// SPDX-License-Identifier: MIT
// Wrong: the rate decays to 0: the final share is forgotten.
// Rejected with: the last update, 19 of 20, must have 0.08
#include "tests/exercises/10_schedule/exercise.h"

#include <algorithm>
#include <cmath>

double learning_rate(const Schedule& s, int64_t step) {
  if (step < s.warmup)
    return s.peak * static_cast<double>(step + 1) / static_cast<double>(s.warmup);
  const int64_t into_decay = std::min(step + 1, s.steps) - (s.steps - s.decay);
  if (into_decay <= 0) return s.peak;
  return s.peak * (1 - std::sqrt(static_cast<double>(into_decay) / static_cast<double>(s.decay)));
}
