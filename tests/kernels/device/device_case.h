// SPDX-License-Identifier: MIT
// What the tests of kernels/device share: numbers that one thread block writes, on the host.
#pragma once

#include "kernels/device/cuda.cuh"

#include <cstddef>
#include <vector>

namespace weft::device_test {
inline bool has_hopper() { return compute_capability() == 90; }

// Runs launch(numbers on the GPU); what is there then. All are -1 before.
template <class T, class Launch>
std::vector<T> numbers_of(std::size_t count, const Launch& launch) {
  std::vector<T> host(count, T(-1));
  T* device = nullptr;
  WEFT_CUDA_CHECK(cudaMalloc(&device, count * sizeof(T)));
  WEFT_CUDA_CHECK(cudaMemcpy(device, host.data(), count * sizeof(T), cudaMemcpyHostToDevice));
  launch(device);
  WEFT_CUDA_CHECK(cudaGetLastError());
  WEFT_CUDA_CHECK(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
  WEFT_CUDA_CHECK(cudaFree(device));
  return host;
}
}  // namespace weft::device_test
