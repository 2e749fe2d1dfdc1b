// SPDX-License-Identifier: MIT
// A consumer warpgroup between MMAs: masks, the scale of probabilities in f16, and rows to memory.
#pragma once

#include "kernels/attention/hopper/stream.cuh"
#include "kernels/device/global_memory.cuh"

namespace weft::attention::hopper {
// Two mask words, shifted so that bit 8 j and 8 j + 1 are this thread's columns.
struct MaskWords {
  uint64_t row[2] = {~uint64_t{0}, ~uint64_t{0}};

  __device__ __forceinline__ void load(const uint64_t* masks, int mask) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      row[half] =
          __ldg(masks + static_cast<int64_t>(mask) * kTile + row_of(half)) >> (threadIdx.x % 4 * 2);
  }

  // Of columns 8 j + 2 t + i.
  __device__ __forceinline__ bool at(int half, int j, int i) const {
    return row[half] >> (8 * j + i) & 1;
  }

  __device__ __forceinline__ void apply(float (&s)[32], float value) const {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (!at(half, j, i)) s[4 * j + 2 * half + i] = value;
  }
};

// The key-stationary kernels keep probabilities, as operands, and dV times 2^kProbabilityBits. f16
// has all its digits only above 6e-5: the dV of rarely attended keys would have few. 2^14 is a
// quarter of its largest number. dS has no such scale: dP and delta are times kProbabilityUnit
// before they meet a probability.
template <class T>
inline constexpr int kProbabilityBits = dtype_of<T> == DType::f16 ? 14 : 0;
// What an operand of 1 stands for.
template <class T>
inline constexpr float kProbabilityUnit = 1.0f / static_cast<float>(1 << kProbabilityBits<T>);

// What is added to scaled scores, so that their exp2 is a probability times 2^kProbabilityBits.
// Infinite for queries that attend nothing (lse = -inf): all their pairs are masked, and become 0.
template <class T>
__device__ __forceinline__ float less_lse(float lse) {
  if constexpr (kProbabilityBits<T> == 0) return lse * -kLog2E;
  return fmaf(lse, -kLog2E, kProbabilityBits<T>);
}

// dP into dS: `p` is times 2^kProbabilityBits, `delta` times kProbabilityUnit. Both scales are
// exact: products of f16 are multiples of 2^-48, far above the smallest of f32.
template <class T>
__device__ __forceinline__ float score_gradient(float p, float dp, float delta) {
  if constexpr (kProbabilityBits<T> == 0) return p * (dp - delta);
  return p * fmaf(dp, kProbabilityUnit<T>, -delta);
}

// As round_to_operand(). Scores rounded above the bound give the type's largest number; NaN stays
// NaN.
template <class T>
__device__ __forceinline__ void round_probabilities(uint32_t (&a)[4][4], const float (&s)[32]) {
  if constexpr (kProbabilityBits<T> == 0) {
    round_to_operand<T>(a, s);
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) a[i / 4][i % 4] = pack_f16_saturated(s[2 * i], s[2 * i + 1]);
  }
}

// Position of this thread's rows of the stationary tile, -1: empty.
template <int kOwners>
__device__ __forceinline__ int position_of(const WorkItem<kOwners>& work, int own, int half) {
  const int tile = work.tile[own];
  return tile < 0 ? -1 : __ldg(work.own_order + static_cast<int64_t>(tile) * kTile + row_of(half));
}

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
}  // namespace weft::attention::hopper
