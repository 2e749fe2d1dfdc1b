// SPDX-License-Identifier: MIT
// Time on the CPU.
#include "kernels/timer.h"

#include <chrono>

namespace weft {

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

}  // namespace weft
