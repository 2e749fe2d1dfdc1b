// SPDX-License-Identifier: MIT
// The epilogue of kernels over lists, and of columns that add: rows of accumulators to memory.
#pragma once

#include "kernels/attention/direction.cuh"
#include "kernels/device/global_memory.cuh"
#include "kernels/device/wgmma.cuh"

namespace weft::attention::hopper {
// Brings rows that store_row() will add to into the L2 cache: at the end of a work item nothing
// hides their way.
__device__ __forceinline__ void prefetch_rows(const int (&position)[2], const Rows& out) {
  for (int half = 0; half < 2; ++half)
    for (uint32_t chunk = threadIdx.x % 4 * 2; position[half] >= 0 && chunk < out.chunks;
         chunk += 8)
      prefetch_l2(out.at(position[half], chunk));
}

// Rounds this thread's part of a row (64 or 128 columns of `c`) times `factor` and stores it at
// `position`. add: what is there is added, times `kept`; it is read before the first store, so that
// the waits are one. Lanes of a quad exchange pieces so that each writes 16 bytes.
template <class T, int kHalf, int N>
__device__ __forceinline__ void store_row(const float (&c)[N], float factor, bool add, float kept,
                                          int position, const Rows& out) {
  const int t = threadIdx.x % 4;
  uint32_t before[N / 4];
#pragma unroll
  for (int j = 0; add && j < N / 4; ++j)
    before[j] = position >= 0 && j < static_cast<int>(out.chunks)
                    ? *reinterpret_cast<const uint32_t*>(out.at(position, j) + t * 4)
                    : 0;
#pragma unroll
  for (int group = 0; group < N / 16; ++group) {
    uint32_t w[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int j = 4 * group + k;
      float low = c[4 * j + 2 * kHalf] * factor, high = c[4 * j + 2 * kHalf + 1] * factor;
      if (add) {
        low = fmaf(low_half<T>(before[j]), kept, low);
        high = fmaf(high_half<T>(before[j]), kept, high);
      }
      w[k] = pack<T>(low, high);
    }
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2)
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (k & bit) continue;
        const bool odd = t & bit;
        const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? w[k] : w[k | bit], bit);
        if (odd)
          w[k] = got;
        else
          w[k | bit] = got;
      }
    const int chunk = 4 * group + t;
    if (position >= 0 && chunk < static_cast<int>(out.chunks))
      *reinterpret_cast<uint4*>(const_cast<char*>(out.at(position, chunk))) =
          make_uint4(w[0], w[1], w[2], w[3]);
  }
}

// Both rows of this thread, of a gradient. add: to what is there.
template <class T, int N>
__device__ __forceinline__ void store_rows(const float (&c)[N], float factor, bool add,
                                           const int (&position)[2], const Rows& out) {
  store_row<T, 0>(c, factor, add, 1.0f, position[0], out);
  store_row<T, 1>(c, factor, add, 1.0f, position[1], out);
}
}  // namespace weft::attention::hopper
