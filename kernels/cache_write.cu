// SPDX-License-Identifier: MIT
// A warp copies the key and the value of one (sequence, head).
#include "kernels/cache_write.h"
#include "kernels/cuda.cuh"

namespace weft {
namespace {

constexpr int kWarps = 4;

template <class T>
__global__ void __launch_bounds__(kWarps* kWarp) cache_write_kernel(const __grid_constant__ CacheWrite w) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (at >= w.k.batch * w.k.heads) return;
  const std::int64_t b = at / w.k.heads, h = at % w.k.heads, row = w.row[h];
  if (row < 0) return;
  const auto copy = [&](const HeadsView& cache, const HeadsView& x) {
    const T* from = static_cast<const T*>(x.data) + b * x.batch_stride + h * x.head_stride;
    T* to = static_cast<T*>(cache.data) + b * cache.batch_stride + row * cache.time_stride +
            h * cache.head_stride;
    for (std::int64_t c = threadIdx.x % kWarp; c < x.size; c += kWarp) to[c] = from[c];
  };
  copy(w.k_cache, w.k);
  copy(w.v_cache, w.v);
}

}  // namespace

void run(CudaQueue& queue, const CacheWrite& w) {
  check(w);
  const std::int64_t copies = w.k.batch * w.k.heads;
  if (copies == 0) return;
  dispatch_cuda(w.k.dtype, [&]<class T>() {
    cache_write_kernel<T><<<blocks_for(copies, kWarps), kWarps * kWarp, 0, queue.stream>>>(w);
  });
}

}  // namespace weft
