// SPDX-License-Identifier: MIT
// Clusters of thread blocks (sm_90): who one is, meeting the others, and their shared memory.
#pragma once

#include "kernels/device/mbarrier.cuh"

namespace weft {
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t r = 0;
  WEFT_SM90_ASM("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
// Every thread of every thread block has come this far, and sees what the others wrote before.
__device__ __forceinline__ void cluster_sync() {
  WEFT_SM90_ASM("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                    : "memory");
}
// The same place in the shared memory of another thread block.
__device__ __forceinline__ uint32_t mapa(uint32_t address, int rank) {
  uint32_t r = 0;
  WEFT_SM90_ASM("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank));
  return r;
}
}  // namespace weft
