// SPDX-License-Identifier: MIT
// A learning rate that warms up, stays, and decays.
#pragma once

#include <cstdint>

struct Schedule {
  int64_t steps = 0;   // updates of the run
  int64_t warmup = 0;  // of these, the first ones; may be 0
  int64_t decay = 0;   // and the last ones; warmup + decay <= steps; may be 0
  double peak = 0;
  double final_share = 0;  // the rate of the last update, as a share of peak
};

// The learning rate of update `step`, counted from 0.
double learning_rate(const Schedule&, int64_t step);
