// SPDX-License-Identifier: MIT
// Dropout inside CUDA kernels: the mask of kernels/philox.h, eight neighbouring elements at a time.
#pragma once

#include "kernels/device/cuda.cuh"
#include "kernels/layers/dropout_mask.h"

#include <curand_kernel.h>

namespace weft {
// One dropout call on a matrix of `cols` columns, as a kernel argument.
struct DropoutCall {
  const StepScalars* step = nullptr;
  int64_t cols = 0;
  uint32_t threshold = 0, site = 0;
  float scale = 1.0f;
};

inline DropoutCall dropout_call(double p, uint32_t site, const StepScalars* step, int64_t cols) {
  const uint32_t threshold = dropout_threshold(p);
  return {step, cols, threshold, site, static_cast<float>(dropout_scale(threshold))};
}

// v = mask * v / (1 - p), element i by half-word i of four words, compared in the upper half of a
// word.
__device__ __forceinline__ void drop_by(float (&v)[8], const DropoutCall& d,
                                        const uint32_t* words) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t half_word = i % 2 ? words[i / 2] : words[i / 2] << 16;
    v[i] = half_word >= d.threshold << 16 ? __fmul_rn(v[i], d.scale) : 0.0f;
  }
}

// A call inside a thread, which reads StepScalars once.
class DropoutGroups {
 public:
  explicit __device__ __forceinline__ DropoutGroups(const DropoutCall& d) {
    if (!d.threshold) return;
    seed_ = d.step->seed;
    draw_ = static_cast<uint32_t>(d.step->draw);
    before_ = d.step->first_row * d.cols;
  }

  // The place of an element of the matrix among those of the update.
  __device__ __forceinline__ int64_t place(int64_t element) const { return before_ + element; }

  // The half-words of elements 8 * group ... 8 * group + 7 of the update.
  __device__ __forceinline__ uint4 bits(const DropoutCall& d, uint64_t group) const {
    const uint4 counter = {static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32), d.site,
                           draw_};
    return curand_Philox4x32_10(
        counter, uint2{static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
  }

  // drop<true>() below.
  __device__ __forceinline__ void drop(float (&v)[8], const DropoutCall& d, int64_t first) const {
    if (!d.threshold) return;
    const uint4 four = bits(d, static_cast<uint64_t>(place(first)) / 8);
    const uint32_t words[4] = {four.x, four.y, four.z, four.w};
    drop_by(v, d, words);
  }

 private:
  uint64_t seed_ = 0;
  int64_t before_ = 0;
  uint32_t draw_ = 0;
};

// v = mask * v / (1 - p) for elements first .. first + 7. kAligned: `first` and cols are multiples
// of eight.
template <bool kAligned>
__device__ __forceinline__ void drop(float (&v)[8], const DropoutCall& d, int64_t first) {
  if (!d.threshold) return;
  const DropoutGroups groups(d);
  if (kAligned) return groups.drop(v, d, first);
  const int64_t place = groups.place(first);
  const auto group = static_cast<uint64_t>(place) / 8;
  const uint4 bits = groups.bits(d, group);
  uint32_t words[8] = {bits.x, bits.y, bits.z, bits.w};
  // Half-words to skip: the missing ones are the first of the next group.
  if (const unsigned shift = place % 8) {
    const uint4 more = groups.bits(d, group + 1);
    words[4] = more.x, words[5] = more.y, words[6] = more.z, words[7] = more.w;
#pragma unroll
    for (int i = 0; i < 6; ++i) words[i] = shift & 4 ? words[i + 2] : words[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) words[i] = shift & 2 ? words[i + 1] : words[i];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      words[i] = shift & 1 ? words[i] >> 16 | words[i + 1] << 16 : words[i];
  }
  drop_by(v, d, words);
}
}  // namespace weft
