// SPDX-License-Identifier: MIT
// Time of launches on a GPU: an event before each and one behind it. Where the host is not ahead of the
// device, the time of a small kernel is that of its launch.
#include <utility>

#include "kernels/cuda.cuh"
#include "kernels/cuda_event.cuh"
#include "kernels/launch_profile.h"

namespace weft {
namespace {

class CudaProfile : public LaunchProfile {
 public:
  explicit CudaProfile(const CudaQueue& queue) : queue_(queue) {}
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
    for (std::size_t i = 0; i < used_; ++i) records_[i].milliseconds = ended_[i].since(began_[i]);
    used_ = 0;
    return std::exchange(records_, {});
  }

 private:
  CudaQueue queue_;
  std::vector<CudaEvent> began_, ended_;  // made once, used again after take()
  std::size_t used_ = 0;
  std::vector<LaunchRecord> records_;
};

}  // namespace

std::unique_ptr<LaunchProfile> make_launch_profile(CudaQueue& queue) {
  return std::make_unique<CudaProfile>(queue);
}

}  // namespace weft
