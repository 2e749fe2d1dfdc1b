// SPDX-License-Identifier: MIT
// What every update of weights ends with.
#pragma once

#include "kernels/device/cuda.cuh"
#include "kernels/step_scalars.h"

namespace weft {
// Flat blocks: master weights, their moving average (or null), and the copy that kernels read (or
// null).
template <class T>
struct Weights {
  float *master, *ema;
  T* compute;
  const StepScalars* step;

  // Elements first .. first + N - 1 become p, of which `count` exist; the moving average follows.
  template <int N>
  __device__ __forceinline__ void put(int64_t first, const float (&p)[N], int64_t count,
                                      bool packed) const {
    store(master + first, p, count, packed);
    if (compute) store(compute + first, p, count, packed);
    if (!ema) return;
    float mean[N];
    load(mean, ema + first, count, packed);
    const float kept = step->ema_decay;
#pragma unroll
    for (int i = 0; i < N; ++i) mean[i] = kept * mean[i] + (1.0f - kept) * p[i];
    store(ema + first, mean, count, packed);
  }
};
}  // namespace weft
