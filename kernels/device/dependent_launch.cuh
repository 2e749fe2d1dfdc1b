// SPDX-License-Identifier: MIT
// Programmatic dependent launch (compute capability 9.0): a kernel starts before the one ahead has
// ended, fetches what that one does not write, then waits. Chains of short kernels, as in sampling,
// lose no time.
#pragma once

#include "kernels/device/cuda.cuh"

namespace weft {
// All that a kernel ahead may write is read, and everything is written, after this. Every thread
// calls it.
__device__ __forceinline__ void griddepcontrol_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// From here on the next kernel on the queue may begin, if it was started with launch_dependent().
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

struct LaunchSize {
  unsigned blocks, threads, shared_bytes = 0, cluster = 1;
};

template <class... Parameters>
void launch_dependent(CudaQueue& queue, void (*kernel)(Parameters...), LaunchSize size,
                      const std::type_identity_t<Parameters>&... values) {
  int device = 0, major = 0;
  WEFT_CUDA_CHECK(cudaGetDevice(&device));
  WEFT_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (major >= 9) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (size.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {size.cluster, 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(size.blocks);
  config.blockDim = dim3(size.threads);
  config.dynamicSmemBytes = size.shared_bytes;
  config.stream = queue.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  WEFT_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, values...));
}

template <class... Parameters>
void launch_dependent(CudaQueue& queue, void (*kernel)(Parameters...), unsigned blocks,
                      unsigned threads, const std::type_identity_t<Parameters>&... values) {
  launch_dependent(queue, kernel, LaunchSize{blocks, threads}, values...);
}
}  // namespace weft
