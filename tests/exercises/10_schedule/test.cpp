// SPDX-License-Identifier: MIT
// Tables of short runs, and what holds for every run.
#include "tests/exercises/10_schedule/exercise.h"
#include "tests/exercises/check.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace {
using exercise::expect;

constexpr Schedule kRun{.steps = 20, .warmup = 4, .decay = 4, .peak = 0.8, .final_share = 0.1};

bool close(double a, double b) { return std::abs(a - b) < 1e-12; }

void no_update_is_wasted() {
  expect(learning_rate(kRun, 0) > 0, "the rate of update 0 is ", learning_rate(kRun, 0),
         ": it would change nothing");
}

void the_warm_up_is_a_line() {
  for (int64_t step = 0; step < 4; ++step) {
    const double want = 0.2 * static_cast<double>(step + 1), got = learning_rate(kRun, step);
    expect(close(got, want), "warmup 4, peak 0.8: update ", step, " must have ", want, ", it has ",
           got);
  }
}

void the_plateau_is_at_the_peak() {
  for (int64_t step = 4; step < 16; ++step)
    expect(close(learning_rate(kRun, step), 0.8), "update ", step, " of the plateau has ",
           learning_rate(kRun, step), ", not the peak 0.8");
}

void the_last_update_has_the_final_rate() {
  expect(close(learning_rate(kRun, 19), 0.08), "the last update, 19 of 20, must have 0.08, it has ",
         learning_rate(kRun, 19));
}

void the_decay_is_one_minus_a_root() {
  for (int64_t step = 16; step < 20; ++step) {
    const double progress = static_cast<double>(step - 15) / 4,
                 want = 0.08 + 0.72 * (1 - std::sqrt(progress)), got = learning_rate(kRun, step);
    expect(close(got, want), "update ", step, ", ", progress, " of the decay, must have ", want,
           ", it has ", got);
  }
}

void after_the_end_the_rate_stays() {
  expect(close(learning_rate(kRun, 25), 0.08), "update 25 of a run of 20 must keep 0.08, it has ",
         learning_rate(kRun, 25));
}

void phases_may_be_empty() {
  const Schedule constant{.steps = 5, .peak = 1, .final_share = 0.1};
  for (int64_t step = 0; step < 5; ++step)
    expect(close(learning_rate(constant, step), 1), "without warm-up and decay update ", step,
           " must have the peak 1, it has ", learning_rate(constant, step));
  const Schedule no_plateau{.steps = 4, .warmup = 2, .decay = 2, .peak = 1, .final_share = 0};
  const std::vector<double> want{0.5, 1, 1 - std::sqrt(0.5), 0};
  for (int64_t step = 0; step < 4; ++step)
    expect(close(learning_rate(no_plateau, step), want[step]), "without a plateau update ", step,
           " must have ", want[step], ", it has ", learning_rate(no_plateau, step));
}

// Why one takes this schedule: a checkpoint of the plateau can go on in a run of any length.
void the_length_of_a_run_does_not_matter_before_its_decay() {
  Schedule longer = kRun;
  longer.steps = 1000;
  for (int64_t step = 0; step < 16; ++step)
    expect(learning_rate(kRun, step) == learning_rate(longer, step), "update ", step,
           " has another rate in a run of 1000 updates: a run of 20 could not go on");
}
}  // namespace

int main() {
  return exercise::run({
      {"no update is wasted", no_update_is_wasted},
      {"the warm-up is a line", the_warm_up_is_a_line},
      {"the plateau is at the peak", the_plateau_is_at_the_peak},
      {"before its decay, the length of a run does not matter",
       the_length_of_a_run_does_not_matter_before_its_decay},
      {"the last update has the final rate", the_last_update_has_the_final_rate},
      {"the decay is one minus a root", the_decay_is_one_minus_a_root},
      {"after the end the rate stays", after_the_end_the_rate_stays},
      {"phases may be empty", phases_may_be_empty},
  });
}
