// SPDX-License-Identifier: MIT
// How the warpgroups of a block on sm_90a wait for each other and for the copy engine: mbarriers (PTX ISA,
// "Parallel Synchronization and Communication Instructions: mbarrier"), barriers of a warpgroup, groups of
// stores, and the split of registers.
#pragma once

#include <cstdint>

namespace weft::attention::hopper {

inline constexpr int kWarpgroup = 128;  // threads

// ---- barriers in shared memory ----
//
// A phase of a barrier ends with the last of its arrivals and of the bytes it expects; then the next one
// begins, which wants as many arrivals again. Phases have parities 0, 1, 0, ... A ring of places has two
// barriers for each: who empties a place waits on one for the parity of the round, who fills it on the other
// for the parity of the round before, which in the first round is that of a phase that never was and counts
// as ended. Nobody may be two phases behind: a parity tells one phase from the next only.

__device__ __forceinline__ void init_barrier(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void arrive(std::uint32_t barrier) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
#endif
}
// One arrival for each warp, after all its lanes are done.
__device__ __forceinline__ void arrive_warp(std::uint32_t barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(barrier);
}
// Arrives, and adds the bytes that the copy engine will count down.
__device__ __forceinline__ void arrive_and_expect(std::uint32_t barrier, int bytes) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
#endif
}
// Arrives once the copies that this thread has started so far have landed.
__device__ __forceinline__ void arrive_after_copies(std::uint32_t barrier) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
#endif
}
// Returns once the phase of that parity has ended; what was written before its arrivals is visible then.
__device__ __forceinline__ void wait_for_phase(std::uint32_t barrier, int parity) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra "
      "again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
#endif
}
// Whether a phase has ended, without waiting for it.
__device__ __forceinline__ bool phase_has_ended(std::uint32_t barrier, int parity) {
  int ended = 0;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile(
      "{\n.reg .pred done;\nmbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.s32 %0, 1, 0, done;\n}\n"
      : "=r"(ended)
      : "r"(barrier), "r"(parity)
      : "memory");
#endif
  return ended;
}
// What ordinary instructions and cp.async wrote becomes visible to products.
__device__ __forceinline__ void show_to_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// ---- warpgroups ----

// The one that the calling thread is of.
__device__ __forceinline__ int this_group() { return static_cast<int>(threadIdx.x / kWarpgroup); }
// True of one thread of each.
__device__ __forceinline__ bool leads_group() { return threadIdx.x % kWarpgroup == 0; }

// All threads of a warpgroup meet; barrier 0 belongs to the block.
__device__ __forceinline__ void synchronize_group(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
}
__device__ __forceinline__ void synchronize_group() { synchronize_group(this_group()); }

// ---- stores of the copy engine, from shared memory ----

// Ends a group of this thread's.
__device__ __forceinline__ void commit_stores() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}
// Waits until all but the last kPending groups of this thread have read their shared memory, which may be
// written again, or end with the block, then. What they store may still be on its way.
template <int kPending>
__device__ __forceinline__ void wait_until_read() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
#endif
}
// Waits until what all groups of this thread store is in global memory.
__device__ __forceinline__ void wait_until_stored() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

// ---- registers: what a lane of this warpgroup has from here on ----

template <int kRegisters>
__device__ __forceinline__ void give_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

}  // namespace weft::attention::hopper
