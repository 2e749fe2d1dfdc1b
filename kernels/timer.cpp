// SPDX-License-Identifier: MIT
// Time on the CPU.
#include "kernels/timer.h"

#include <chrono>

namespace weft {
namespace {

std::int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::vector<double> time_runs(CpuQueue&, int repeats, const std::function<void()>& before,
                              const std::function<void()>& work) {
  std::vector<double> milliseconds;
  for (int i = 0; i < repeats; ++i) {
    before();
    const auto began = std::chrono::steady_clock::now();
    work();
    milliseconds.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count());
  }
  return milliseconds;
}

std::int64_t multiprocessors(CpuQueue&) { return 1; }

void read_clocks(CpuQueue&, ClockReading* readings) { *readings = {0, nanoseconds_now()}; }

void count_time(CpuQueue&, std::int64_t* nanoseconds, bool ends) {
  *nanoseconds += ends ? nanoseconds_now() : -nanoseconds_now();
}

}  // namespace weft
