// SPDX-License-Identifier: MIT
// The steady clock, and what clock readings of either device say.
#include "kernels/diagnostics/timer.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace weft {
namespace {
int64_t nanoseconds_now() {
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
    const int64_t began = nanoseconds_now();
    work();
    milliseconds.push_back(static_cast<double>(nanoseconds_now() - began) * 1e-6);
  }
  return milliseconds;
}

int64_t multiprocessors(CpuQueue&) { return 1; }

void read_clocks(CpuQueue&, ClockReading* readings) { *readings = {0, nanoseconds_now()}; }

double clock_mhz(std::span<const ClockReading> began, std::span<const ClockReading> ended) {
  double cycles = 0, nanoseconds = 0;
  for (std::size_t i = 0; i < began.size(); ++i) {
    if (began[i].nanoseconds == 0 || ended[i].nanoseconds == 0) continue;
    cycles += static_cast<double>(ended[i].cycles - began[i].cycles);
    nanoseconds += static_cast<double>(ended[i].nanoseconds - began[i].nanoseconds);
  }
  return nanoseconds > 0 ? cycles / nanoseconds * 1e3 : 0;
}

void count_time(CpuQueue&, int64_t* nanoseconds, bool ends) {
  *nanoseconds += ends ? nanoseconds_now() : -nanoseconds_now();
}
}  // namespace weft
