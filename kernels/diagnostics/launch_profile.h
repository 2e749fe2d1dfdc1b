// SPDX-License-Identifier: MIT
// What a launch costs and how long it took. A queue with a LaunchProfile records kernel, shape,
// bytes, FLOP and time of every eager launch.
#pragma once

#include "kernels/view.h"

#include <memory>
#include <string>
#include <vector>

namespace weft {
struct CpuQueue;
struct CudaQueue;

// The least that a launch moves and computes: each operand read or written once. 0: unknown.
struct LaunchCost {
  double bytes = 0, flops = 0;
  std::string shape;  // of kernels that run in several: "N 4096, K 512, M 2048"
};

struct LaunchRecord {
  const char* kernel = "";
  LaunchCost cost;
  double milliseconds = 0;
};

class LaunchProfile {
 public:
  virtual ~LaunchProfile() = default;
  virtual void begin() = 0;
  virtual void end(const char* kernel, LaunchCost cost) = 0;
  // The launches since the last call, in order. Waits for the queue.
  virtual std::vector<LaunchRecord> take() = 0;
};

// Reads the clock on the CPU, records events on a GPU.
std::unique_ptr<LaunchProfile> make_launch_profile(CpuQueue&);
std::unique_ptr<LaunchProfile> make_launch_profile(CudaQueue&);

inline double bytes_of(const std::vector<TensorView>& views) {
  double bytes = 0;
  for (const TensorView& v : views) bytes += v ? static_cast<double>(v.bytes()) : 0;
  return bytes;
}

// A kernel that counts more than its operands has cost(); others list inputs() and outputs().
template <class Kernel>
LaunchCost cost_of(const Kernel& kernel) {
  if constexpr (requires { kernel.cost(); }) {
    return kernel.cost();
  } else if constexpr (requires { kernel.inputs(), kernel.outputs(); }) {
    return {
        .bytes = bytes_of(kernel.inputs()) + bytes_of(kernel.outputs()),
        .flops = 0,
        .shape = "",
    };
  } else {
    return {};
  }
}
}  // namespace weft
