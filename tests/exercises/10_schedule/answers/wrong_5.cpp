// SPDX-License-Identifier: MIT
// Wrong: progress goes on after the last update.
// Rejected with: must keep 0.08
#include "tests/exercises/10_schedule/exercise.h"

#include <cmath>

double learning_rate(const Schedule& s, int64_t step) {
  if (step < s.warmup)
    return s.peak * static_cast<double>(step + 1) / static_cast<double>(s.warmup);
  const int64_t into_decay = step + 1 - (s.steps - s.decay);
  if (into_decay <= 0) return s.peak;
  const double progress = static_cast<double>(into_decay) / static_cast<double>(s.decay);
  return s.peak * (s.final_share + (1 - s.final_share) * (1 - std::sqrt(progress)));
}
