// SPDX-License-Identifier: MIT
// Faults of a device: bits of its memory that flip while it works.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "src/device.h"

namespace weft {

// Flips bit `bit` of the bytes at `memory` of the device.
inline void flip_bit(Device& device, void* memory, std::int64_t bit) {
  const TensorView byte{static_cast<char*>(memory) + bit / 8, DType::u8, 1};
  unsigned char value = 0;
  device.download(&value, byte);
  value = static_cast<unsigned char>(value ^ 1u << bit % 8);
  device.upload(byte, &value);
}

// Behind each launch on a queue, of code that is not captured.
class AfterLaunches : public LaunchProfile {
 public:
  using Act = std::function<void(const std::string& kernel)>;
  AfterLaunches(Device& device, Act act) : queue_(device.queue), act_(std::move(act)) { set(this); }
  ~AfterLaunches() override { set(nullptr); }
  AfterLaunches(const AfterLaunches&) = delete;
  AfterLaunches& operator=(const AfterLaunches&) = delete;
  void begin() override {}
  void end(const char* kernel, LaunchCost) override { act_(kernel); }
  std::vector<LaunchRecord> take() override { return {}; }

 private:
  void set(LaunchProfile* profile) {
    std::visit([profile](auto& queue) { queue.profile = profile; }, queue_);
  }
  Queue& queue_;
  Act act_;
};

}  // namespace weft
