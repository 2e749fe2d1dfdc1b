// SPDX-License-Identifier: MIT
#include "kernels/device/cuda.cuh"
#include "kernels/diagnostics/count_non_finite.h"

#include <algorithm>
#include <cstdint>

namespace weft {
namespace {
// NaN and infinity are counted in whole numbers, so that blocks may add theirs in any order.
constexpr int kThreads = 256, kGroup = 8;
constexpr unsigned kBlocks = 1024;  // all resident at once on a large GPU
constexpr int kMost = 8191;         // of a thread: kBlocks * kThreads * kMost stays below 2^31

template <class T>
__global__ void __launch_bounds__(kThreads)
    count_kernel(int32_t* count, const T* x, int64_t n, bool packed) {
  int found = 0;
  const int64_t turn = int64_t{gridDim.x} * kThreads * kGroup;
#pragma unroll 4
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup; i < n;
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

void compute(CudaQueue& q, const CountNonFinite& k) {
  auto* const count = k.count.as<int32_t>();
  const int64_t n = k.x.size();
  WEFT_CUDA_CHECK(cudaMemsetAsync(count, 0, sizeof(*count), q.stream));
  if (n == 0) return;
  const unsigned blocks = std::min(kBlocks, blocks_for(n, kThreads * kGroup));
  dispatch_cuda(k.x.dtype, [&]<class T>() {
    count_kernel<<<blocks, kThreads, 0, q.stream>>>(count, k.x.as<T>(), n, aligned16(k.x));
  });
}
}  // namespace weft
