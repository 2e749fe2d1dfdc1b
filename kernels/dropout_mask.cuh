// SPDX-License-Identifier: MIT
// Dropout inside CUDA kernels: the mask of kernels/philox.h, eight neighbouring elements at a time.
#pragma once

#include <curand_kernel.h>

#include "kernels/cuda.cuh"
#include "kernels/dropout_mask.h"

namespace weft {

// One dropout call on a matrix of `cols` columns, as a kernel argument.
struct DropoutCall {
  const StepScalars* step = nullptr;
  std::int64_t cols = 0;
  std::uint32_t threshold = 0, site = 0;
  float scale = 1.0f;
};

inline DropoutCall dropout_call(double p, std::uint32_t site, const StepScalars* step, std::int64_t cols) {
  const std::uint32_t threshold = dropout_threshold(p);
  return {step, cols, threshold, site, static_cast<float>(dropout_scale(threshold))};
}

// The half-words of elements 8 * group ... 8 * group + 7.
__device__ __forceinline__ uint4 dropout_bits(const DropoutCall& d, std::uint64_t group) {
  const std::uint64_t seed = d.step->seed;
  const uint4 counter = {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32), d.site,
                         static_cast<std::uint32_t>(d.step->draw)};
  return curand_Philox4x32_10(
      counter, uint2{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

// v = mask * v / (1 - p) for the elements first .. first + 7 of the matrix. kAligned: `first` and the columns
// are multiples of eight.
template <bool kAligned>
__device__ __forceinline__ void drop(float (&v)[8], const DropoutCall& d, std::int64_t first) {
  if (!d.threshold) return;
  first += d.step->first_row * d.cols;
  const auto group = static_cast<std::uint64_t>(first) / 8;
  const uint4 bits = dropout_bits(d, group);
  std::uint32_t words[8] = {bits.x, bits.y, bits.z, bits.w};
  // Half-words to skip: the missing ones are the first of the next group.
  if (const unsigned shift = kAligned ? 0 : first % 8) {
    const uint4 more = dropout_bits(d, group + 1);
    words[4] = more.x, words[5] = more.y, words[6] = more.z, words[7] = more.w;
#pragma unroll
    for (int i = 0; i < 6; ++i) words[i] = shift & 4 ? words[i + 2] : words[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) words[i] = shift & 2 ? words[i + 1] : words[i];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = shift & 1 ? words[i] >> 16 | words[i + 1] << 16 : words[i];
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    // Compared where they lie, in the upper half of a word.
    const std::uint32_t half_word = i % 2 ? words[i / 2] : words[i / 2] << 16;
    v[i] = half_word >= d.threshold << 16 ? __fmul_rn(v[i], d.scale) : 0.0f;
  }
}

}  // namespace weft
