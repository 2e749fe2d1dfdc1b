// SPDX-License-Identifier: MIT
// A CUDA event: a point in a stream's work, and the time between two of them.
#pragma once

#include "kernels/device/cuda.cuh"

#include <utility>

namespace weft {
class CudaEvent {
 public:
  CudaEvent() { WEFT_CUDA_CHECK(cudaEventCreate(&event_)); }

  CudaEvent(CudaEvent&& other) noexcept
      : event_(std::exchange(other.event_, nullptr)) {}

  ~CudaEvent() {
    if (event_) static_cast<void>(cudaEventDestroy(event_));
  }

  void record(const CudaQueue& q) { WEFT_CUDA_CHECK(cudaEventRecord(event_, q.stream)); }

  double since(const CudaEvent& earlier) const {
    WEFT_CUDA_CHECK(cudaEventSynchronize(event_));
    float milliseconds = 0;
    WEFT_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, earlier.event_, event_));
    return static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};
}  // namespace weft
