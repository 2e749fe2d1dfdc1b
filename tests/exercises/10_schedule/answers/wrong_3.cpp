// SPDX-License-Identifier: MIT
// Wrong: the decay begins after the warm-up, as in a cosine schedule: there is no plateau.
// Rejected with: of the plateau has
#include "tests/exercises/10_schedule/exercise.h"

#include <algorithm>
#include <cmath>

double learning_rate(const Schedule& s, int64_t step) {
  if (step < s.warmup)
    return s.peak * static_cast<double>(step + 1) / static_cast<double>(s.warmup);
  const double progress = std::min(
      1.0, static_cast<double>(step + 1 - s.warmup) / static_cast<double>(s.steps - s.warmup));
  return s.peak * (s.final_share + (1 - s.final_share) * (1 - std::sqrt(progress)));
}
