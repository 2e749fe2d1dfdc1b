// SPDX-License-Identifier: MIT
// Update `step` ends at step + 1: both phases end exactly where they should.
#include "tests/exercises/10_schedule/exercise.h"

#include <algorithm>
#include <cmath>

double learning_rate(const Schedule& s, int64_t step) {
  if (step < s.warmup)
    return s.peak * static_cast<double>(step + 1) / static_cast<double>(s.warmup);
  const int64_t into_decay = std::min(step + 1, s.steps) - (s.steps - s.decay);
  if (into_decay <= 0) return s.peak;
  const double progress = static_cast<double>(into_decay) / static_cast<double>(s.decay);
  return s.peak * (s.final_share + (1 - s.final_share) * (1 - std::sqrt(progress)));
}
