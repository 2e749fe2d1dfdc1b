// SPDX-License-Identifier: MIT
// Clusters of thread blocks (sm_90): who one is, meeting the others, and their shared memory.
#pragma once

#include <cstdint>

namespace weft {

__device__ __forceinline__ std::uint32_t cluster_rank() {
  std::uint32_t r = 0;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
#endif
  return r;
}
// Every thread of every thread block has come this far, and sees what the others wrote before.
__device__ __forceinline__ void cluster_sync() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
// The same place in the shared memory of another thread block.
__device__ __forceinline__ std::uint32_t mapa(std::uint32_t address, int rank) {
  std::uint32_t r = 0;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank));
#endif
  return r;
}

}  // namespace weft
