// SPDX-License-Identifier: MIT
// Time between two events around each run, and clocks that a kernel reads when it runs.
#include "kernels/device/cuda.cuh"
#include "kernels/device/event.cuh"
#include "kernels/device/global_memory.cuh"
#include "kernels/diagnostics/timer.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace weft {
namespace {
// Two blocks fill a multiprocessor; with four for each, every one gets a block.
constexpr int kReaderThreads = 1024;
constexpr unsigned kReadersPerMultiprocessor = 4;

__device__ int64_t nanoseconds_now() { return static_cast<int64_t>(device::global_timer()); }

// Blocks on the same multiprocessor write the same row; any of their readings will do.
__global__ void __launch_bounds__(kReaderThreads)
    read_clocks_kernel(ClockReading* readings, unsigned count) {
  if (threadIdx.x != 0) return;
  const unsigned multiprocessor = device::multiprocessor_index();
  if (multiprocessor < count) readings[multiprocessor] = {clock64(), nanoseconds_now()};
}

__global__ void count_time_kernel(int64_t* nanoseconds, bool ends) {
  *nanoseconds += ends ? nanoseconds_now() : -nanoseconds_now();
}
}  // namespace

std::vector<double> time_runs(CudaQueue& q, int repeats, const std::function<void()>& before,
                              const std::function<void()>& work) {
  std::vector<CudaEvent> began(static_cast<std::size_t>(repeats)),
      ended(static_cast<std::size_t>(repeats));
  for (std::size_t i = 0; i < began.size(); ++i) {
    before();
    began[i].record(q);
    work();
    ended[i].record(q);
  }
  std::vector<double> milliseconds;
  for (std::size_t i = 0; i < began.size(); ++i) milliseconds.push_back(ended[i].since(began[i]));
  return milliseconds;
}

int64_t multiprocessors(CudaQueue&) { return multiprocessors(); }

void read_clocks(CudaQueue& q, ClockReading* readings) {
  const auto count = static_cast<unsigned>(multiprocessors(q));
  read_clocks_kernel<<<kReadersPerMultiprocessor * count, kReaderThreads, 0, q.stream>>>(readings,
                                                                                         count);
  WEFT_CUDA_CHECK(cudaGetLastError());
}

void count_time(CudaQueue& q, int64_t* nanoseconds, bool ends) {
  count_time_kernel<<<1, 1, 0, q.stream>>>(nanoseconds, ends);
  WEFT_CUDA_CHECK(cudaGetLastError());
}
}  // namespace weft
