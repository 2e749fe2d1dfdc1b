// SPDX-License-Identifier: MIT
// Checks around every CUDA launch.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "kernels/device/cuda.cuh"

namespace weft {
namespace {

std::chrono::steady_clock::time_point launch_began;  // launches come from one thread

[[noreturn]] void launch_failure(const char* kernel, cudaError_t status) {
  fail(kernel, ": the CUDA launch failed: ", cudaGetErrorString(status), " (", cudaGetErrorName(status),
       "); WEFT_DEBUG=2 waits for every launch and names the first that fails");
}

// NaN and infinity are counted in whole numbers, so that blocks may add theirs in any order.
constexpr int kThreads = 256, kGroup = 8;
constexpr unsigned kBlocks = 1024;  // all resident at once on a large GPU
constexpr int kMost = 8191;         // of a thread: kBlocks * kThreads * kMost stays below 2^31

template <class T>
__global__ void __launch_bounds__(kThreads)
    count_kernel(std::int32_t* count, const T* x, std::int64_t n, bool packed) {
  int found = 0;
  const std::int64_t turn = std::int64_t{gridDim.x} * kThreads * kGroup;
#pragma unroll 4
  for (std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup; i < n;
       i += turn) {
    float v[kGroup];
    load(v, x + i, n - i, packed);  // zeros behind the end
#pragma unroll
    for (int j = 0; j < kGroup; ++j) found += !isfinite(v[j]);
  }
  found = block_sum<kThreads>(min(found, kMost));
  if (threadIdx.x == 0 && found > 0) atomicAdd(count, found);
}

}  // namespace

void begin(CudaQueue& q) {
  if (debug_level() < 2 || is_captured(q)) return;
  WEFT_CUDA_CHECK(cudaStreamSynchronize(q.stream));
  launch_began = std::chrono::steady_clock::now();
}

void finish(CudaQueue& q, const char* kernel) {
  const cudaError_t launched = cudaGetLastError();
  if (launched != cudaSuccess) launch_failure(kernel, launched);
  if (debug_level() == 0) return;
  if (debug_level() == 1 || is_captured(q)) {
    std::fprintf(stderr, "weft: cuda %s\n", kernel);
    return;
  }
  const cudaError_t ran = cudaStreamSynchronize(q.stream);
  if (ran != cudaSuccess) launch_failure(kernel, ran);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - launch_began;
  std::fprintf(stderr, "weft: cuda %s %.3f ms\n", kernel, took.count());
}

void compute(CudaQueue& q, const CountNonFinite& k) {
  auto* const count = k.count.as<std::int32_t>();
  const std::int64_t n = k.x.size();
  WEFT_CUDA_CHECK(cudaMemsetAsync(count, 0, sizeof(*count), q.stream));
  if (n == 0) return;
  const unsigned blocks = std::min(kBlocks, blocks_for(n, kThreads * kGroup));
  dispatch_cuda(k.x.dtype, [&]<class T>() {
    count_kernel<<<blocks, kThreads, 0, q.stream>>>(count, k.x.as<T>(), n, aligned16(k.x));
  });
}

void check_finite(CudaQueue& q, const char* kernel, const std::vector<TensorView>& outputs) {
  if (is_captured(q)) return;
  auto* const count = static_cast<std::int32_t*>(q.workspace);
  for (const TensorView& x : outputs) {
    if (!x) continue;
    run(q, CountNonFinite{{count, DType::i32, 1}, x});
    std::int32_t found = 0;
    WEFT_CUDA_CHECK(cudaMemcpyAsync(&found, count, sizeof(found), cudaMemcpyDeviceToHost, q.stream));
    WEFT_CUDA_CHECK(cudaStreamSynchronize(q.stream));
    WEFT_CHECK(found == 0, kernel, ": ", found, " of the ", x.size(), " elements of an output ",
               shape_text(x), " are NaN or infinite");
  }
}

}  // namespace weft
