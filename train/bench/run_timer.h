// SPDX-License-Identifier: MIT
// Times of runs on a device, with the GPU's clock meanwhile: time x clock does not depend on the power limit.
#pragma once

#include "kernels/timer.h"
#include "src/device.h"

namespace weft {

// Of each run.
struct TimedRuns {
  std::vector<double> milliseconds;
  std::vector<double> clocks;  // MHz, of all multiprocessors; 0 on the CPU

  double median_ms() const;
  double mean_clock() const;  // MHz
};

double median(std::vector<double> values);   // the upper one of an even number
DType bench_dtype(const std::string& name);  // f32, f16 or bf16; throws Error for other names
std::function<void()> l2_flush(Device&);     // clears the caches: to be run before each timed run

class RunTimer {
 public:
  // The device rests for `pause_ms` before each run, so that its clock is not at the power limit.
  explicit RunTimer(Device&, int pause_ms = 0);
  // `repeats` runs (at least one) that start with cold caches.
  TimedRuns time(int repeats, const std::function<void()>& work);
  // As many runs as take about `ms`, 3 to 50, after a few that are not counted.
  TimedRuns time_for(double ms, const std::function<void()>& work);

 private:
  Device& device_;
  int pause_ms_;
  std::int64_t multiprocessors_;
  std::function<void()> flush_;
};

}  // namespace weft
