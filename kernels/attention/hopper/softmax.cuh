// SPDX-License-Identifier: MIT
// The online softmax of a consumer's rows (Dao et al. 2022, arXiv 2205.14135, algorithm 1), by
// exp2.
#pragma once

#include "kernels/device/mma.cuh"

#include <cmath>

namespace weft::attention::hopper {
using namespace device;

// Of this thread's two rows. exp2 is relative to `top`, an earlier maximum. It moves only when the
// sum of an iteration exceeds kLimit, so that accumulators are rarely rescaled; the quotient is the
// same.
struct Softmax {
  static constexpr float kLimit = 4096;  // far below what f16 holds
  // The reference of rows that have seen no key: the exp2 of a score is infinite, so that
  // apply_again() fails, but that of a hidden one, -infinity, is 0.
  static constexpr float kUnseen = -3.4e38f;
  float scale;  // times log2(e)
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  float reference[2] = {kUnseen, kUnseen};  // taken off scaled scores: top * scale
  float here[2] = {0, 0};                   // this thread's part of the sum of this iteration
  // what older accumulators are to be multiplied by after begin()
  float shrink[2] = {1, 1};

  // Scores into probabilities relative to `top`: they add to `here`.
  __device__ __forceinline__ void apply(float (&s)[32]) {
    const float taken[2] = {top[0] == -INFINITY ? 0.0f : top[0] * scale,
                            top[1] == -INFINITY ? 0.0f : top[1] * scale};
    apply(s, taken);
  }

  // The same in an iteration after the one that called begin().
  __device__ __forceinline__ void apply_again(float (&s)[32]) { apply(s, reference); }

  // The same for some of the scores: from s[kFrom] to s[kTo - 1].
  template <int kFrom, int kTo>
  __device__ __forceinline__ void apply_again(float (&s)[32]) {
#pragma unroll
    for (int i = kFrom; i < kTo; ++i) apply(s[i], i / 2 % 2, reference);
  }

  // Whether begin() is to be called instead: a row of this warp grew too large, or has no reference
  // yet, and the exp2 of its first scores may vanish.
  __device__ __forceinline__ bool failed() const {
    return __any_sync(0xffffffffu, !(here[0] <= kLimit) || !(here[1] <= kLimit));
  }

  // Moves `top` to the largest score, then the same as apply() of a new iteration.
  __device__ __forceinline__ void begin(float (&s)[32]) {
    here[0] = here[1] = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float x = top[half];
#pragma unroll
      for (int j = 0; j < 8; ++j) x = fmaxf(x, fmaxf(s[4 * j + 2 * half], s[4 * j + 2 * half + 1]));
      x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
      x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
      shrink[half] = x == top[half] ? 1.0f : exp2_fast((top[half] - x) * scale);
      sum[half] *= shrink[half];
      top[half] = x;
      reference[half] = x == -INFINITY ? kUnseen : x * scale;
    }
    apply(s);
  }

  // Before any iteration: the row goes on from y with log-sum-exp `lse` (-inf: it has seen no key).
  __device__ __forceinline__ void resume(int half, float lse) {
    if (lse == -INFINITY) return;
    reference[half] = lse * kLog2E;
    top[half] = reference[half] / scale;
    sum[half] = 0.25f;  // of each lane of a quad
  }

  // Before any iteration: this row is an empty slot, which needs no reference of its own.
  __device__ __forceinline__ void leave_out(int half) { top[half] = reference[half] = 0; }

  __device__ __forceinline__ void add() {
#pragma unroll
    for (int half = 0; half < 2; ++half) sum[half] += here[half], here[half] = 0;
  }

  // The end of a row that earlier passes left with log-sum-exp `before` (-inf: none): its own, and
  // the factors of its accumulators and of what is there. Lanes of a quad call it together.
  struct Row {
    float lse, now, kept;
  };

  __device__ __forceinline__ Row finish(int half, float before) const {
    float all = sum[half];
    all += __shfl_xor_sync(0xffffffffu, all, 1);
    all += __shfl_xor_sync(0xffffffffu, all, 2);
    const float here = fmaf(top[half], scale, __log2f(all)) * (1 / kLog2E);  // -inf where all is 0
    all = fmaxf(all, 1e-30f);  // else 1 or more: 0 / all is a number
    if (before == -INFINITY) return {here, __fdividef(1, all), 0};
    const float most = fmaxf(before, here);
    const float lse =
        most + __logf(exp2_fast((before - most) * kLog2E) + exp2_fast((here - most) * kLog2E));
    return {lse, __fdividef(exp2_fast((here - lse) * kLog2E), all),
            exp2_fast((before - lse) * kLog2E)};
  }

  template <int N>
  __device__ __forceinline__ void rescale(float (&y)[N]) const {
#pragma unroll
    for (int i = 0; i < N; ++i) y[i] *= shrink[i / 2 % 2];
  }

 private:
  __device__ __forceinline__ void apply(float (&s)[32], const float (&taken)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) apply(s[4 * j + 2 * half + i], half, taken);
  }

  __device__ __forceinline__ void apply(float& x, int half, const float (&taken)[2]) {
    x = exp2_fast(fmaf(x, scale, -taken[half]));
    here[half] += x;
  }
};
}  // namespace weft::attention::hopper
