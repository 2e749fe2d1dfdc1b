// SPDX-License-Identifier: MIT
// Time on a GPU, between two events around each run.
#include "kernels/cuda_event.cuh"
#include "kernels/timer.h"

namespace weft {
std::vector<double> time_runs(CudaQueue& q, int repeats, const std::function<void()>& before,
                              const std::function<void()>& work) {
  std::vector<CudaEvent> began(static_cast<std::size_t>(repeats)), ended(static_cast<std::size_t>(repeats));
  for (std::size_t i = 0; i < began.size(); ++i) {
    before();
    began[i].record(q);
    work();
    ended[i].record(q);
  }
  std::vector<double> milliseconds;
  for (std::size_t i = 0; i < began.size(); ++i) milliseconds.push_back(ended[i].since(began[i]));
  return milliseconds;
}

}  // namespace weft
