// SPDX-License-Identifier: MIT
// Time on a queue: CUDA events on a GPU, the clock on the CPU.
#pragma once

#include <functional>
#include <vector>

#include "kernels/queue.h"

namespace weft {

// Milliseconds of each of `repeats` runs of `work`. `before` comes before each run and is not counted. Waits
// for the queue.
std::vector<double> time_runs(CpuQueue&, int repeats, const std::function<void()>& before,
                              const std::function<void()>& work);
std::vector<double> time_runs(CudaQueue&, int repeats, const std::function<void()>& before,
                              const std::function<void()>& work);

}  // namespace weft
