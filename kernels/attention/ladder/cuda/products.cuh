// SPDX-License-Identifier: MIT
// The idea of rung 2, which rungs 3 to 5 use, too: a thread block keeps matrices of 64 x 64 in
// shared memory, as f32, and a product's sums in registers. Each of 256 threads has 4 x 4 of them,
// so that a number that it reads serves four products.
#pragma once

#include "kernels/attention/direction.cuh"
#include "kernels/attention/ladder/cuda/rungs.h"
#include "kernels/attention/launch.cuh"
#include "kernels/attention/launchers.h"
#include "kernels/device/cuda.cuh"

#include <cmath>
#include <variant>

namespace weft::ladder::cuda {
using namespace attention;
using Number = __nv_bfloat16;

constexpr int kThreads = 256, kSide = 16, kEach = 4;  // kSide x kSide threads of kEach x kEach sums
static_assert(kCudaHeadSize == kTile && kSide * kEach == kTile, "all matrices are square");

// Neighbouring rows begin in other banks.
using Matrix = float[kTile][kTile + 4];
using Sums = float[kEach][kEach];
using RowNumbers = float[kEach];

// Of each row: bit c is set where the pair with column c is attended.
using RowWords = uint64_t[kEach];

// The first of a thread's rows; its columns are column() + kSide j.
__device__ inline int first_row() { return static_cast<int>(threadIdx.x) / kSide * kEach; }

__device__ inline int column() { return static_cast<int>(threadIdx.x) % kSide; }

__device__ inline float4 four(const float* x) { return *reinterpret_cast<const float4*>(x); }

// s = a b^T
__device__ inline void multiply_transposed(Sums& s, const Matrix& a, const Matrix& b) {
  for (auto& row : s)
    for (float& sum : row) sum = 0;
#pragma unroll 4
  for (int d = 0; d < kTile; d += 4)
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const float4 y = four(&b[column() + kSide * j][d]);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const float4 x = four(&a[first_row() + i][d]);
        s[i][j] += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
      }
    }
}

// sums += weights x; here the columns of a thread are 4 column() + j.
__device__ inline void multiply_add(Sums& sums, const Matrix& weights, const Matrix& x) {
#pragma unroll 2
  for (int k = 0; k < kTile; k += 4) {
    float4 w[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) w[i] = four(&weights[first_row() + i][k]);
    const auto add = [&](int of, auto weight) {
      const float4 y = four(&x[k + of][kEach * column()]);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        sums[i][0] += weight(w[i]) * y.x, sums[i][1] += weight(w[i]) * y.y;
        sums[i][2] += weight(w[i]) * y.z, sums[i][3] += weight(w[i]) * y.w;
      }
    };
    add(0, [](const float4& v) { return v.x; }), add(1, [](const float4& v) { return v.y; });
    add(2, [](const float4& v) { return v.z; }), add(3, [](const float4& v) { return v.w; });
  }
}

// Shares s with the threads of the same rows, which are lanes of the same warp.
__device__ inline void put(Matrix& to, const Sums& s) {
  __syncwarp();  // the lanes have read what was there
#pragma unroll
  for (int i = 0; i < kEach; ++i)
#pragma unroll
    for (int j = 0; j < kEach; ++j) to[first_row() + i][column() + kSide * j] = s[i][j];
  __syncwarp();
}

// Copies 64 rows to shared memory. position(r): of row r; zeros where there is none.
template <class Position>
__device__ void load_tile(Matrix& to, const HeadsView& x, const BlockIndex& at,
                          Position&& position) {
  for (int item = static_cast<int>(threadIdx.x); item < kTile * kTile / 8; item += kThreads) {
    const int r = item / (kTile / 8), d = item % (kTile / 8) * 8, t = position(r);
    float eight[8] = {};
    if (t >= 0 && t < x.time) load(eight, head_row<const Number>(x, at, t) + d, 8, true);
    for (int k = 0; k < 8; ++k) to[r][d + k] = eight[k];
  }
}

// Stores factor[i] * sums.
template <class Position>
__device__ void store_tile(const HeadsView& x, const BlockIndex& at, const Sums& sums,
                           const RowNumbers& factor, Position&& position) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int t = position(first_row() + i);
    if (t < 0 || t >= x.time) continue;
    RowNumbers out;
    for (int j = 0; j < kEach; ++j) out[j] = sums[i][j] * factor[i];
    store(head_row<Number>(x, at, t) + kEach * column(), out, kEach, true);
  }
}
}  // namespace weft::ladder::cuda
