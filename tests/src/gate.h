// SPDX-License-Identifier: MIT
// For tests of what a host does while a GPU is behind.
#pragma once

#ifdef WEFT_CUDA
#include "src/cuda/staging.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace weft {
// Holds a stream up until it is opened, ten seconds at most.
class Gate {
 public:
  void close(cudaStream_t stream) {
    WEFT_CUDA_CALL(cudaLaunchHostFunc(
        stream, [](void* gate) { static_cast<Gate*>(gate)->wait(); }, this));
  }

  // Whether it was still closed.
  bool open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
    return !left_;
  }

 private:
  void wait() {
    std::unique_lock lock(mutex_);
    left_ = !changed_.wait_for(lock, std::chrono::seconds(10), [&] { return open_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false, left_ = false;
};
}  // namespace weft
#endif
