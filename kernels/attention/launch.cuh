// SPDX-License-Identifier: MIT
// How attention kernels are started: head sizes to instantiations, grid sizes, shared memory beyond
// 48 KiB.
#pragma once

#include "kernels/attention/attention.h"

#include <cuda_runtime.h>

namespace weft::attention {
// x, here and below: AttentionForward or AttentionBackward. Calls f.operator()<T>(), T: f16 or
// bf16.
template <class X, class F>
void with_type(const X& x, F&& f) {
  x.q.dtype == DType::bf16 ? f.template operator()<bf16>() : f.template operator()<f16>();
}

// Calls f.operator()<T, Dqk, Dv>() with the smallest padded sizes that there is a kernel for.
// Columns beyond the true size are zeros in shared memory and are never stored.
template <class X, class F>
void with_head_sizes(const X& x, F&& f) {
  with_type(x, [&]<class T>() {
    if (x.q.size <= 32 && x.v.size <= 32) return f.template operator()<T, 32, 32>();
    if (x.q.size <= 64 && x.v.size <= 64) return f.template operator()<T, 64, 64>();
    if (x.q.size <= 64) return f.template operator()<T, 64, 128>();
    return f.template operator()<T, 128, 128>();
  });
}

// One block for `together` tiles of each (batch, head).
inline unsigned blocks_for(const HeadsView& x, int64_t tiles, int64_t together) {
  const int64_t blocks = x.batch * x.heads * ((tiles + together - 1) / together);
  WEFT_CHECK(blocks <= 0x7fffffff, "attention: ", x.batch, " x ", x.heads, " heads of ", tiles,
             " tiles are more than one launch can take; lower the batch size");
  return static_cast<unsigned>(blocks);
}

template <class... Args>
void allow_shared_memory(void (*kernel)(Args...), int bytes) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  WEFT_CHECK(error == cudaSuccess, "attention: this GPU cannot give a block ", bytes,
             " bytes of shared memory: ", cudaGetErrorString(error));
}

template <class... Args>
void start(CudaQueue& queue, void (*kernel)(Args...), unsigned blocks, int threads,
           int shared_bytes, const Args&... args) {
  if (blocks == 0) return;
  allow_shared_memory(kernel, shared_bytes);
  kernel<<<blocks, threads, shared_bytes, queue.stream>>>(args...);
}
}  // namespace weft::attention
