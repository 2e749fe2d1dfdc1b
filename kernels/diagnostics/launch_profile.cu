// SPDX-License-Identifier: MIT
// Launches on a GPU, between two events. What events add is measured with an empty kernel against
// launches in a CUDA graph, and subtracted. If the host is not ahead, it is the launch's time.
#include "kernels/device/cuda.cuh"
#include "kernels/device/event.cuh"
#include "kernels/diagnostics/launch_profile.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace weft {
namespace {
constexpr int kEmptyLaunches = 200;
// cycles, about 3 ms: the host enqueues those launches meanwhile
constexpr long long kHeadStart = 6'000'000;

__global__ void do_nothing() {}

__global__ void wait_cycles(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {}
}

// Milliseconds of an empty launch between two events.
double time_alone(const CudaQueue& q) {
  std::vector<CudaEvent> began(kEmptyLaunches), ended(kEmptyLaunches);
  std::vector<double> apart;
  wait_cycles<<<1, 1, 0, q.stream>>>(kHeadStart);
  for (int i = 0; i < kEmptyLaunches; ++i) {
    began[i].record(q);
    do_nothing<<<1, 1, 0, q.stream>>>();
    ended[i].record(q);
  }
  for (int i = 0; i < kEmptyLaunches; ++i) apart.push_back(ended[i].since(began[i]));
  std::nth_element(apart.begin(), apart.begin() + kEmptyLaunches / 2, apart.end());
  return apart[kEmptyLaunches / 2];
}

// The same among others in a CUDA graph.
double time_in_graph(const CudaQueue& q) {
  cudaGraph_t recorded = nullptr;
  cudaGraphExec_t graph = nullptr;
  WEFT_CUDA_CHECK(cudaStreamBeginCapture(q.stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kEmptyLaunches; ++i) do_nothing<<<1, 1, 0, q.stream>>>();
  WEFT_CUDA_CHECK(cudaStreamEndCapture(q.stream, &recorded));
  WEFT_CUDA_CHECK(cudaGraphInstantiate(&graph, recorded, 0));
  WEFT_CUDA_CHECK(cudaGraphDestroy(recorded));
  CudaEvent began, ended;
  double together = 0;
  for (int i = 0; i < 3; ++i) {  // the first launch uploads it
    began.record(q);
    WEFT_CUDA_CHECK(cudaGraphLaunch(graph, q.stream));
    ended.record(q);
    together = ended.since(began);
  }
  WEFT_CUDA_CHECK(cudaGraphExecDestroy(graph));
  return together / kEmptyLaunches;
}

class CudaProfile : public LaunchProfile {
 public:
  explicit CudaProfile(const CudaQueue& queue)
      : queue_(queue),
        of_events_(std::max(0.0, time_alone(queue) - time_in_graph(queue))) {}

  void begin() override {
    if (used_ == began_.size()) {
      began_.emplace_back();
      ended_.emplace_back();
    }
    began_[used_].record(queue_);
  }

  void end(const char* kernel, LaunchCost cost) override {
    ended_[used_++].record(queue_);
    records_.push_back({kernel, std::move(cost), 0});
  }

  std::vector<LaunchRecord> take() override {
    for (std::size_t i = 0; i < used_; ++i)
      records_[i].milliseconds = std::max(0.0, ended_[i].since(began_[i]) - of_events_);
    used_ = 0;
    return std::exchange(records_, {});
  }

 private:
  CudaQueue queue_;
  double of_events_;
  std::vector<CudaEvent> began_, ended_;  // reused after take()
  std::size_t used_ = 0;
  std::vector<LaunchRecord> records_;
};
}  // namespace

std::unique_ptr<LaunchProfile> make_launch_profile(CudaQueue& queue) {
  return std::make_unique<CudaProfile>(queue);
}
}  // namespace weft
