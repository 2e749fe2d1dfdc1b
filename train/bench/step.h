// SPDX-License-Identifier: MIT
// `bench step`: times whole updates of a config on random tokens.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "src/ranks/process_group.h"

namespace weft {

struct BenchStepOptions {
  std::string config;
  std::vector<std::string> overrides;  // "a.b=c"
  std::string device = "auto";
  std::int64_t steps = 20;  // timed, after the warm-up
  bool json = false;        // one object
  bool breakdown = true;    // by kernel, too
};

// A row to `out`: milliseconds a step (median, fastest, slowest, and without waiting for each), tokens/s,
// FLOP/s counted from the pairs that are needed, share of the measured matrix rate, bytes at the peak,
// seconds from the start to the end of the first step; then where the time goes
// (train/bench/step_breakdown.h). Of several ranks: the whole update of all of them, and where its time goes,
// from rows of steps of three kinds taken in turn, so that clocks and temperatures are the same. `alone`:
// each rank by itself, all at once, with its share of the update and no communicator. `wait`: what a step
// without sums, at whose end the ranks wait for each other, takes beyond that: the slowest rank of each step.
// `exposed`: what sums of gradients add to that step. `scaling`: `alone` over the step as trained. Beside
// them clocks and waiting of each kind (train/bench/ranks.h). `out` counts on rank 0.
void bench_step(const BenchStepOptions&, ProcessGroup&, std::ostream& out);

}  // namespace weft
