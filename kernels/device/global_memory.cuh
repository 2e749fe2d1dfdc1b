// SPDX-License-Identifier: MIT
// Global memory beyond plain loads and stores: order between thread blocks, prefetches, and the
// registers that tell time and place.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>

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

// One word or four that other thread blocks write, without an order to anything else.
__device__ __forceinline__ uint32_t ld_relaxed_gpu(const uint32_t* from) {
  uint32_t r;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(r) : "l"(from) : "memory");
  return r;
}

__device__ __forceinline__ uint4 ld_relaxed_gpu_16(const uint32_t* from) {
  uint4 r;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
               : "l"(from)
               : "memory");
  return r;
}

__device__ __forceinline__ void st_relaxed_gpu(uint32_t* to, uint32_t x) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}

// What a thread block reads once: it stays out of L1.
__device__ __forceinline__ uint4 ld_no_allocate_16(const void* from) {
  uint4 r;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
               : "l"(from));
  return r;
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
