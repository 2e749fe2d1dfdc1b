// SPDX-License-Identifier: MIT
// Barriers for some of the threads of a block, by number: 0 is that of __syncthreads(), 1 to 7 are
// those of warpgroups, and a kernel names others in an enum from kFirstNamedBarrier to 15.
#pragma once

#include "kernels/device/mbarrier.cuh"

namespace weft::device {
inline constexpr int kFirstNamedBarrier = 8;

// Waits until `threads` threads have come, those that arrive without waiting included.
template <class Name>
__device__ __forceinline__ void named_barrier_sync(Name barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(static_cast<int>(barrier)), "r"(threads) : "memory");
}

// The same where the number is known to the compiler.
template <int kBarrier, int kThreads>
__device__ __forceinline__ void named_barrier_sync() {
  asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
}

// Counts, and does not wait.
template <class Name>
__device__ __forceinline__ void named_barrier_arrive(Name barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(static_cast<int>(barrier)), "r"(threads) : "memory");
}

// All threads of a warpgroup meet, at the barrier of its number.
__device__ __forceinline__ void warpgroup_sync(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
}

__device__ __forceinline__ void warpgroup_sync() { warpgroup_sync(warpgroup_index()); }
}  // namespace weft::device
