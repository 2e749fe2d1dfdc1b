// SPDX-License-Identifier: MIT
// A ring of stages between warps: a position in it.
#pragma once

#include "kernels/device/mbarrier.cuh"

namespace weft::device {
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
}  // namespace weft::device
