// SPDX-License-Identifier: MIT
// How the Hopper kernels are started: head sizes to instantiations, as many blocks as run at the same time.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/attention/attention.h"
#include "kernels/device/dependent_launch.cuh"

namespace weft::attention::hopper {

// select() asks first whether TMA takes the strides of the tensors.
inline constexpr const char* kTmaRefuses =
    "attention: TMA does not take these tensors, or the driver is older than CUDA 12";

// Calls f.operator()<Dqk, Dv>() with the smallest padded sizes that there is a kernel for. Columns beyond the
// true size are zeros in shared memory and are never stored.
template <class F>
void with_head_sizes(std::int64_t qk, std::int64_t v, F&& f) {
  if (qk <= 64 && v <= 64) return f.template operator()<64, 64>();
  if (qk <= 64) return f.template operator()<64, 128>();
  return f.template operator()<128, 128>();
}

// Calls f.operator()<flag>().
template <class F>
void with_bool(bool flag, F&& f) {
  flag ? f.template operator()<true>() : f.template operator()<false>();
}

// A task for `owners` tiles of each (batch, head).
inline std::int64_t work_items_of(const HeadsView& x, std::int64_t tiles, std::int64_t owners) {
  const std::int64_t tasks = x.batch * x.heads * ((tiles + owners - 1) / owners);
  WEFT_CHECK(tasks <= 0x7fffffff, "attention: ", x.batch, " x ", x.heads, " heads of ", tiles,
             " tiles are more than one launch can take; lower the batch size");
  return tasks;
}

// One block a multiprocessor, at most one for each task. The kernel may have that much shared memory.
template <class... Args>
LaunchSize size_of_launch(void (*kernel)(Args...), std::int64_t tasks, int threads, int shared_bytes) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  WEFT_CHECK(error == cudaSuccess, "attention: this GPU cannot give a block ", shared_bytes,
             " bytes of shared memory: ", cudaGetErrorString(error));
  return {static_cast<unsigned>(std::min<std::int64_t>(tasks, multiprocessors())),
          static_cast<unsigned>(threads), static_cast<unsigned>(shared_bytes)};
}
template <class... Args>
void start(CudaQueue& queue, void (*kernel)(Args...), std::int64_t tasks, int threads, int shared_bytes,
           const Args&... args) {
  if (tasks == 0) return;
  const LaunchSize size = size_of_launch(kernel, tasks, threads, shared_bytes);
  kernel<<<size.blocks, size.threads, size.shared_bytes, queue.stream>>>(args...);
}
// As launch_dependent() does it.
template <class... Args>
void start_dependent(CudaQueue& queue, void (*kernel)(Args...), std::int64_t tasks, int threads,
                     int shared_bytes, const Args&... args) {
  if (tasks != 0)
    launch_dependent(queue, kernel, size_of_launch(kernel, tasks, threads, shared_bytes), args...);
}

}  // namespace weft::attention::hopper
