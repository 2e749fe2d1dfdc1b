// SPDX-License-Identifier: MIT
// Time on a GPU, between two events around each run.
#include <utility>

#include "kernels/cuda.cuh"
#include "kernels/timer.h"

namespace weft {
namespace {

class Event {
 public:
  Event() { WEFT_CUDA_CHECK(cudaEventCreate(&event_)); }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  ~Event() {
    if (event_) static_cast<void>(cudaEventDestroy(event_));
  }
  void record(const CudaQueue& q) { WEFT_CUDA_CHECK(cudaEventRecord(event_, q.stream)); }
  double since(const Event& earlier) const {
    WEFT_CUDA_CHECK(cudaEventSynchronize(event_));
    float milliseconds = 0;
    WEFT_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, earlier.event_, event_));
    return static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

std::vector<double> time_runs(CudaQueue& q, int repeats, const std::function<void()>& before,
                              const std::function<void()>& work) {
  std::vector<Event> began(static_cast<std::size_t>(repeats)), ended(static_cast<std::size_t>(repeats));
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
