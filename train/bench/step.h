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

// Prints to `out`: milliseconds a step (median, fastest, slowest, and back to back), tokens/s, FLOP/s of the
// needed pairs, MFU of the measured GEMM rate, peak memory. Then come the seconds from the start to the end
// of the first step, and where the time of a step goes (train/bench/step_breakdown.h). With several ranks it
// times the update of all of them, and steps of three kinds in turn, so that clocks and temperatures are the
// same. `alone`: each rank by itself, all at once, with its share of the update and no communicator. `wait`:
// the slowest rank of a step without all-reduce, at whose end the ranks wait for each other, over `alone`.
// `exposed`: what the all-reduce of gradients adds to that step. `scaling`: `alone` over the step as trained.
// Clocks and waiting times of each kind follow (train/bench/ranks.h). `out` counts on rank 0.
void bench_step(const BenchStepOptions&, ProcessGroup&, std::ostream& out);

}  // namespace weft
