// SPDX-License-Identifier: MIT
// Global memory beyond plain loads and stores: order between thread blocks, prefetches, and the
// registers that tell time and place.
#pragma once

#include <cstdint>

namespace weft::device {
// Reads a number that another thread block wrote by st_release_gpu(); what that block wrote before
// is visible after the new value has been read.
__device__ __forceinline__ int ld_acquire_gpu(const int32_t* from) {
  int r;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(r) : "l"(from) : "memory");
  return r;
}

__device__ __forceinline__ void st_release_gpu(int32_t* to, int x) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}

__device__ __forceinline__ void prefetch_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// Nanoseconds, of all multiprocessors alike.
__device__ __forceinline__ uint64_t global_timer() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

__device__ __forceinline__ uint32_t multiprocessor_index() {
  uint32_t index;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(index));
  return index;
}
}  // namespace weft::device
