// SPDX-License-Identifier: MIT
// What the CUDA forms of DecodeLinear share: arguments, statistics of rows, the epilogue.
#pragma once

#include "kernels/device/dependent_launch.cuh"
#include "kernels/device/mma.cuh"
#include "kernels/device/vector8.cuh"
#include "kernels/sampling/decode_linear.h"

namespace weft::decode_linear {
template <class T>
struct Arguments {
  T* y;
  const T *x, *w, *b, *residual;  // b, residual: null where absent
  const float *norm_w, *norm_b;   // null where absent
  int64_t rows, cols, inner;
  unsigned column_blocks;  // blocks of a row of blocks
  float eps;
  bool activates, packed;  // packed: rows of x and w, norm_w and norm_b are aligned for packs
  Activation f;            // where it activates
};

struct Statistics {
  float mean, rstd;
};

// Of rows first .. first + kRows - 1 of x, or the last row, by a warp; two passes, the second over
// registers where these hold the rows. kPacked: 16-bit elements, rows in packs.
template <int kRows, bool kPacked, class T>
__device__ __forceinline__ void row_statistics(Statistics* out, const Arguments<T>& a,
                                               int64_t first) {
  const int lane = threadIdx.x % kWarp;
  float x[kRows][8], sum[kRows] = {}, mean[kRows], squares[kRows] = {};
  const auto read = [&](int64_t c) {
    const auto row = [&](int r) { return a.x + min(first + r, a.rows - 1) * a.inner + c; };
    if constexpr (kPacked) {
      uint4 packs[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) packs[r] = *reinterpret_cast<const uint4*>(row(r));
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        unpack(x[r], Eight<T>{packs[r]});  // all were asked for before the first is used
    } else {
#pragma unroll
      for (int r = 0; r < kRows; ++r) load(x[r], row(r), a.inner - c, a.packed);
    }
  };
  for (int64_t c = lane * 8; c < a.inner; c += kWarp * 8) {
    read(c);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[r] += x[r][i];
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) mean[r] = warp_sum(sum[r]) / static_cast<float>(a.inner);
  for (int64_t c = lane * 8; c < a.inner; c += kWarp * 8) {
    if (a.inner > kWarp * 8) read(c);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (c + i < a.inner) squares[r] = fmaf(x[r][i] - mean[r], x[r][i] - mean[r], squares[r]);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float variance = warp_sum(squares[r]) / static_cast<float>(a.inner);
    if (lane == 0) out[r] = {mean[r], 1.0f / sqrtf(variance + a.eps)};
  }
}

__device__ __forceinline__ float normalise(float x, const Statistics& of_row, float w, float b) {
  return (x - of_row.mean) * of_row.rstd * w + b;
}

template <class T>
__device__ __forceinline__ float activation(float v, Activation f) {
  if (f == Activation::relu2) return relu2(v).y;
  return __fdividef(v, 1.0f + exp_for<T>(-static_cast<float>(kGeluSlope) * v));
}

template <class T>
__device__ __forceinline__ float activation(float v, const Arguments<T>& a) {
  return a.activates ? activation<T>(v, a.f) : v;
}
}  // namespace weft::decode_linear
