// SPDX-License-Identifier: MIT
// What the CUDA forms of DecodeLinear share: arguments, statistics of rows, what follows a product.
#pragma once

#include "kernels/decode_linear.h"
#include "kernels/launch_ahead.cuh"
#include "kernels/pointwise.h"

namespace weft::decode_linear {

template <class T>
struct Arguments {
  T* y;
  const T *x, *w, *b, *residual;  // b, residual: null where absent
  const float *norm_w, *norm_b;   // null where absent
  std::int64_t rows, cols, inner;
  unsigned column_blocks;  // blocks of a row of blocks
  float eps;
  bool gelu, packed;  // packed: rows of x and w, norm_w and norm_b are aligned for packs
};

struct Statistics {
  float mean, rstd;
};

// Of rows first .. first + kRows - 1 of x, by a warp, which has all of them on their way at a time; two
// passes. Rows beyond the last are taken to be the last.
template <int kRows, class T>
__device__ __forceinline__ void row_statistics(Statistics* out, const Arguments<T>& a, std::int64_t first) {
  const int lane = threadIdx.x % kWarp;
  float sum[kRows] = {}, mean[kRows], squares[kRows] = {};
  const auto for_elements = [&](auto&& add) {
    for (std::int64_t c = lane * 8; c < a.inner; c += kWarp * 8) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float x[8];
        load(x, a.x + min(first + r, a.rows - 1) * a.inner + c, a.inner - c, a.packed);
#pragma unroll
        for (int i = 0; i < 8; ++i)
          if (c + i < a.inner) add(r, x[i]);
      }
    }
  };
  for_elements([&](int r, float x) { sum[r] += x; });
#pragma unroll
  for (int r = 0; r < kRows; ++r) mean[r] = warp_sum(sum[r]) / static_cast<float>(a.inner);
  for_elements([&](int r, float x) { squares[r] = fmaf(x - mean[r], x - mean[r], squares[r]); });
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
__device__ __forceinline__ float activation(float v, bool gelu) {
  return gelu ? __fdividef(v, 1.0f + exp_for<T>(-static_cast<float>(kGeluSlope) * v)) : v;
}

}  // namespace weft::decode_linear
