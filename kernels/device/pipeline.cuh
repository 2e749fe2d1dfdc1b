// SPDX-License-Identifier: MIT
// mbarriers as members of a SharedStorage, and rings of stages between a producer and consumers.
// Who arrives, and how often, is an argument of init(): it differs from kernel to kernel and
// decides their speed.
#pragma once

#include "kernels/device/mbarrier.cuh"
#include "kernels/device/storage.cuh"

namespace weft::device {
struct Barrier {
  uint64_t word;

  __device__ __forceinline__ uint32_t address() const { return shared_address(&word); }

  // By one thread, before fence_proxy_async() and a barrier of all threads that use it.
  __device__ __forceinline__ void init(int arrivals) { mbarrier_init(address(), arrivals); }

  __device__ __forceinline__ void arrive() { mbarrier_arrive(address()); }

  // One arrival for the warp.
  __device__ __forceinline__ void arrive_warp() { mbarrier_arrive_warp(address()); }

  // Arrives once the cp.async of this thread have landed.
  __device__ __forceinline__ void arrive_cp_async() { cp_async_mbarrier_arrive(address()); }

  __device__ __forceinline__ void arrive_expect_tx(int bytes) {
    mbarrier_arrive_expect_tx(address(), bytes);
  }

  __device__ __forceinline__ void wait(int parity) const { mbarrier_wait(address(), parity); }

  // Whether the phase has ended, without waiting.
  __device__ __forceinline__ bool test(int parity) const {
    return mbarrier_test_wait(address(), parity);
  }
};

// A stage of a ring of kStages, and the parity of the round.
template <int kStages>
struct PipelineState {
  int stage = 0, parity = 0;

  // Of use number n, where uses are numbered on and on.
  __device__ __forceinline__ static PipelineState of(int n) {
    return {n % kStages, n / kStages & 1};
  }

  __device__ __forceinline__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }

  // The stage n uses before this one; its state.
  __device__ __forceinline__ int stage_back(int n) const {
    return stage < n ? stage - n + kStages : stage - n;
  }

  __device__ __forceinline__ PipelineState back(int n) const {
    return stage < n ? PipelineState{stage - n + kStages, parity ^ 1}
                     : PipelineState{stage - n, parity};
  }
};

template <int kStages>
struct Pipeline {
  using State = PipelineState<kStages>;
  Barrier full[kStages], empty[kStages];

  // Arrivals that end a phase of each.
  __device__ __forceinline__ void init(int producer_arrivals, int consumer_arrivals) {
    for (int i = 0; i < kStages; ++i) {
      full[i].init(producer_arrivals);
      empty[i].init(consumer_arrivals);
    }
  }

  // The producer: waits until nobody reads the stage. In the first round nobody does.
  __device__ __forceinline__ void acquire(State at) const { empty[at.stage].wait(at.parity ^ 1); }

  // The same, and arrives at `full`, which then counts as many bytes.
  __device__ __forceinline__ void acquire(State at, int bytes) {
    acquire(at);
    full[at.stage].arrive_expect_tx(bytes);
  }

  // A consumer: waits until the stage has been filled.
  __device__ __forceinline__ void wait(State at) const { full[at.stage].wait(at.parity); }

  // A warp of a consumer does not read the stage any more.
  __device__ __forceinline__ void release(int stage) { empty[stage].arrive_warp(); }
};
}  // namespace weft::device
