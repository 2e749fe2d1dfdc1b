// SPDX-License-Identifier: MIT
// Faults of a device: bits of its memory that flip while it works.
#pragma once

#include "kernels/diagnostics/launch_profile.h"
#include "kernels/layers/pointwise.h"
#include "tests/train/training.h"
#include "train/trainer/trainer.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace weft {
// Flips bit `bit` of the bytes at `memory` of the device.
inline void flip_bit(Device& device, void* memory, int64_t bit) {
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

  AfterLaunches(Device& device, Act act)
      : queue_(device.queue),
        act_(std::move(act)) {
    set(this);
  }

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

// A flip in one element, behind one launch of a run.
struct Fault {
  std::string kernel;  // behind this launch of it, from 1
  int launch = 1;
  const Tensor& (ParameterStore::*block)() const = &ParameterStore::master;
  std::string parameter;
  int64_t element = 0, bit = 0;
};

inline AfterLaunches::Act acting(Trainer& trainer, const Fault& fault) {
  return [&trainer, fault, launches = 0](const std::string& kernel) mutable {
    if (kernel != fault.kernel || ++launches != fault.launch) return;
    const ParameterStore& store = trainer.parameters();
    const auto p = std::ranges::find(store.params(), fault.parameter, &ParamInfo::name);
    ASSERT_NE(p, store.params().end());
    const Tensor& block = (store.*fault.block)();
    flip_bit(trainer.device(), block.view().data,
             8 * size_of(block.dtype()) * (p->offset + fault.element) + fault.bit);
  };
}

// What the run throws, or "".
inline std::string run_with(Trainer& trainer, const Fault& fault) {
  const AfterLaunches hook(trainer.device(), acting(trainer, fault));
  try {
    trainer.run();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
}  // namespace weft
