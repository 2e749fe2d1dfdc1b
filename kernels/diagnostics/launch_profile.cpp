// SPDX-License-Identifier: MIT
// Launches on the CPU, where a launch returns when its work is done.
#include "kernels/diagnostics/launch_profile.h"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

namespace weft {
namespace {
class CpuProfile : public LaunchProfile {
 public:
  void begin() override { began_ = std::chrono::steady_clock::now(); }

  void end(const char* kernel, LaunchCost cost) override {
    const std::chrono::duration<double, std::milli> took =
        std::chrono::steady_clock::now() - began_;
    records_.push_back({kernel, std::move(cost), took.count()});
  }

  std::vector<LaunchRecord> take() override { return std::exchange(records_, {}); }

 private:
  std::chrono::steady_clock::time_point began_;
  std::vector<LaunchRecord> records_;
};
}  // namespace

std::unique_ptr<LaunchProfile> make_launch_profile(CpuQueue&) {
  return std::make_unique<CpuProfile>();
}
}  // namespace weft
