// SPDX-License-Identifier: MIT
// How attention kernels are started: head sizes to instantiations, grid sizes, shared memory beyond 48 KiB.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/attention/attention.h"

namespace weft::attention {

// Calls f.operator()<Dqk, Dv>() with the smallest padded sizes that there is a kernel for. Columns beyond the
// true size are zeros in shared memory and are never stored.
template <class F>
void with_head_sizes(std::int64_t qk, std::int64_t v, F&& f) {
  if (qk <= 32 && v <= 32) return f.template operator()<32, 32>();
  if (qk <= 64 && v <= 64) return f.template operator()<64, 64>();
  if (qk <= 64) return f.template operator()<64, 128>();
  return f.template operator()<128, 128>();
}

// The same for tiles of edge 16, whose kernels take any size that there is.
template <class F>
void with_rows16_head_sizes(std::int64_t qk, std::int64_t v, F&& f) {
  if (qk <= 128 && v <= 128) return with_head_sizes(qk, v, f);
  if (qk <= 192 && v <= 192) return f.template operator()<192, 192>();
  return f.template operator()<256, 256>();
}

// One block for `together` tiles of each (batch, head).
inline unsigned blocks_for(const HeadsView& x, std::int64_t tiles, std::int64_t together) {
  const std::int64_t blocks = x.batch * x.heads * ((tiles + together - 1) / together);
  WEFT_CHECK(blocks <= 0x7fffffff, "attention: ", x.batch, " x ", x.heads, " heads of ", tiles,
             " tiles are more than one launch can take; lower the batch size");
  return static_cast<unsigned>(blocks);
}

template <class... Args>
void allow_shared_memory(void (*kernel)(Args...), int bytes) {
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  WEFT_CHECK(error == cudaSuccess, "attention: this GPU cannot give a block ", bytes,
             " bytes of shared memory: ", cudaGetErrorString(error));
}
template <class... Args>
void start(CudaQueue& queue, void (*kernel)(Args...), unsigned blocks, int threads, int shared_bytes,
           const Args&... args) {
  if (blocks == 0) return;
  allow_shared_memory(kernel, shared_bytes);
  kernel<<<blocks, threads, shared_bytes, queue.stream>>>(args...);
}

}  // namespace weft::attention
