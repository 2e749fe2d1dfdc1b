// SPDX-License-Identifier: MIT
// A CUDA event that takes part in timing.
#pragma once

#include <utility>

#include "kernels/device/cuda.cuh"

namespace weft {

class CudaEvent {
 public:
  CudaEvent() { WEFT_CUDA_CHECK(cudaEventCreate(&event_)); }
  CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
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
