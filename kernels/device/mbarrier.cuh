// SPDX-License-Identifier: MIT
// Synchronization of warpgroups and TMA on sm_90a: mbarriers (PTX ISA, "Parallel Synchronization
// and Communication Instructions: mbarrier"), the register split, and clusters.
#pragma once

#include <cstdint>

// An instruction of sm_90a, left out of code for other GPUs.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WEFT_SM90_ASM(...) asm volatile(__VA_ARGS__)
#else
#define WEFT_SM90_ASM(...) static_cast<void>(0)
#endif

namespace weft::device {
inline constexpr int kWarpgroup = 128;  // threads

// ---- barriers in shared memory ----
// A phase ends when all expected arrivals and bytes have come; the next phase expects as many
// arrivals. Phases have parities 0, 1, 0, ... A ring of stages has two barriers per stage, full
// and empty. The consumer waits on `full` for the parity of the round. The producer waits on
// `empty` for the opposite parity: in the first round that phase counts as ended. Nobody may fall
// two phases behind.

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  WEFT_SM90_ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival for each warp, after all its lanes are done.
__device__ __forceinline__ void mbarrier_arrive_warp(uint32_t barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
}

// Arrives, and adds the bytes that TMA will count down.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, int bytes) {
  WEFT_SM90_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                : "memory");
}

// Arrives once all cp.async of this thread so far have landed.
__device__ __forceinline__ void cp_async_mbarrier_arrive(uint32_t barrier) {
  WEFT_SM90_ASM("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Returns once the phase of that parity has ended; what was written before its arrivals is visible
// then.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, int parity) {
  WEFT_SM90_ASM(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], "
      "%1;\n@!done bra "
      "again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Whether the phase has ended, as an instruction of that name says.
#define WEFT_MBARRIER_QUESTION(instruction)                                              \
  int ended = 0;                                                                         \
  WEFT_SM90_ASM("{\n.reg .pred done;\nmbarrier." instruction                             \
                ".parity.shared::cta.b64 done, [%1], %2;\nselp.s32 %0, 1, 0, done;\n}\n" \
                : "=r"(ended)                                                            \
                : "r"(barrier), "r"(parity)                                              \
                : "memory");                                                             \
  return ended

// Waits for a while, which the hardware chooses.
__device__ __forceinline__ bool mbarrier_try_wait(uint32_t barrier, int parity) {
  WEFT_MBARRIER_QUESTION("try_wait");
}

// Does not wait.
__device__ __forceinline__ bool mbarrier_test_wait(uint32_t barrier, int parity) {
  WEFT_MBARRIER_QUESTION("test_wait");
}

// What ordinary instructions and cp.async wrote to shared memory becomes visible to wgmma and TMA.
__device__ __forceinline__ void fence_proxy_async() {
  WEFT_SM90_ASM("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- warpgroups ----

__device__ __forceinline__ int warpgroup_index() {
  return static_cast<int>(threadIdx.x / kWarpgroup);
}

// threadIdx.x, read anew: the compiler would keep what it derives from it, and registers are
// scarce.
__device__ __forceinline__ int this_thread() {
  int x;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  return x;
}

// gridDim.x, read anew for the same reason.
__device__ __forceinline__ int this_grid() {
  int x;
  asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(x));
  return x;
}

// One thread of each warpgroup.
__device__ __forceinline__ bool is_warpgroup_leader() { return threadIdx.x % kWarpgroup == 0; }

// ---- registers per thread of this warpgroup from here on ----

template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  WEFT_SM90_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  WEFT_SM90_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// ---- clusters of thread blocks: who one is, meeting the others, and their shared memory ----

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

// Arrives at the same barrier of another thread block of the cluster.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t barrier, int rank) {
  WEFT_SM90_ASM("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(mapa(barrier, rank))
                : "memory");
}

// Stores to an address that mapa() gave. The mbarrier, of the same thread block, counts the bytes.
__device__ __forceinline__ void st_async(uint32_t to, float x, uint32_t mbarrier) {
  WEFT_SM90_ASM(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(to), "f"(x),
      "r"(mbarrier)
      : "memory");
}

__device__ __forceinline__ void st_async(uint32_t to, float x, float y, uint32_t mbarrier) {
  WEFT_SM90_ASM(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
          to),
      "f"(x), "f"(y), "r"(mbarrier)
      : "memory");
}

// Barriers that were initialised are visible to TMA and, after a cluster_sync(), to the cluster.
__device__ __forceinline__ void fence_mbarrier_init() {
  WEFT_SM90_ASM("fence.mbarrier_init.release.cluster;" ::: "memory");
}
}  // namespace weft::device
