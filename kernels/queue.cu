// SPDX-License-Identifier: MIT
// Checks around every CUDA launch.
#include "kernels/device/cuda.cuh"
#include "kernels/diagnostics/count_non_finite.h"
#include "kernels/diagnostics/last_launch.h"
#include "kernels/queue.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace weft {
namespace {
std::chrono::steady_clock::time_point launch_began;  // launches come from one thread

[[noreturn]] void launch_failure(const char* kernel, cudaError_t status) {
  fail(kernel, ": the CUDA launch failed: ", cudaGetErrorString(status), " (",
       cudaGetErrorName(status),
       "); WEFT_DEBUG=2 waits for every launch and names the first that fails");
}
}  // namespace

void begin(CudaQueue& q) {
  if (debug_level() < 2 || is_captured(q)) return;
  WEFT_CUDA_CHECK(cudaStreamSynchronize(q.stream));
  launch_began = std::chrono::steady_clock::now();
}

void finish(CudaQueue& q, const char* kernel) {
  last_launch.store(kernel, std::memory_order_relaxed);
  const cudaError_t launched = cudaGetLastError();
  if (launched != cudaSuccess) launch_failure(kernel, launched);
  if (on_captured_launch) on_captured_launch(kernel);
  if (debug_level() == 0) return;
  if (debug_level() == 1 || is_captured(q)) {
    std::fprintf(stderr, "weft: cuda %s\n", kernel);
    return;
  }
  const cudaError_t ran = cudaStreamSynchronize(q.stream);
  if (ran != cudaSuccess) launch_failure(kernel, ran);
  const std::chrono::duration<double, std::milli> took =
      std::chrono::steady_clock::now() - launch_began;
  std::fprintf(stderr, "weft: cuda %s %.3f ms\n", kernel, took.count());
}

void check_finite(CudaQueue& q, const char* kernel, const std::vector<TensorView>& outputs) {
  if (is_captured(q)) return;
  auto* const count = static_cast<int32_t*>(q.workspace);
  for (const TensorView& x : outputs) {
    if (!x) continue;
    run(q, CountNonFinite{{count, DType::i32, 1}, x});
    int32_t found = 0;
    WEFT_CUDA_CHECK(
        cudaMemcpyAsync(&found, count, sizeof(found), cudaMemcpyDeviceToHost, q.stream));
    WEFT_CUDA_CHECK(cudaStreamSynchronize(q.stream));
    WEFT_CHECK(found == 0, kernel, ": ", found, " of the ", x.size(), " elements of an output ",
               shape_text(x), " are NaN or infinite");
  }
}
}  // namespace weft
