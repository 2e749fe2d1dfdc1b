// SPDX-License-Identifier: MIT
// The idea of rung 6, which the rungs after it use, too: scores, probabilities and sums stay in the
// registers of the tensor cores' fragments (kernels/device/mma.cuh). A warpgroup of 128 threads has
// a tile of 64 rows, a warp 16 of them, a thread two: g and g + 8, with columns 8 n + 2 t + i. They
// lie in a flat array of 32 numbers, in which mma.sync and wgmma agree.
#pragma once

#include "kernels/attention/direction.cuh"
#include "kernels/attention/ladder/cuda/rungs.h"
#include "kernels/attention/launch.cuh"
#include "kernels/attention/launchers.h"
#include "kernels/device/cuda.cuh"
#include "kernels/device/mma.cuh"

#include <cmath>
#include <variant>

namespace weft::ladder::cuda {
using namespace attention;

constexpr int kThreads = 128, kTileBytes = kTile * kTile * 2;  // of bf16
static_assert(kCudaHeadSize == kTile, "all tiles are square");

using Scores = float[32];

__device__ __forceinline__ Scores& flat(Accumulators<1, kTile>& x) {
  return reinterpret_cast<Scores&>(x.c);
}

__device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x) / 32; }

// Row and column of number k of a thread.
__device__ __forceinline__ int row(int k) {
  return warp() * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + k / 2 % 2 * 8;
}

__device__ __forceinline__ int column(int k) {
  return k / 4 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + k % 2;
}

// Scores of pairs that a tile's mask leaves out become `value`.
__device__ __forceinline__ void hide(Scores& s, const Direction& d, int mask, float value) {
  if (mask == -1) return;
  const uint64_t words[2] = {word_of(d.masks, mask, row(0)), word_of(d.masks, mask, row(2))};
#pragma unroll
  for (int k = 0; k < 32; ++k)
    if (!(words[k / 2 % 2] >> column(k) & 1)) s[k] = value;
}

// Of a thread's two rows. Scores are to base 2: `scale` is times log2(e).
struct OnlineSoftmax {
  float scale, top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};

  // Scores into probabilities relative to the largest so far; y shrinks when that grows.
  __device__ __forceinline__ void apply(Scores& s, Scores& y) {
    float shift[2], shrink[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float high = top[half];
#pragma unroll
      for (int k = 0; k < 32; ++k)
        if (k / 2 % 2 == half) high = fmaxf(high, s[k]);
      high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 1));
      high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 2));
      shift[half] = high == -INFINITY ? 0 : high * scale;
      shrink[half] = exp2_fast(top[half] * scale - shift[half]);
      top[half] = high, sum[half] *= shrink[half];
    }
#pragma unroll
    for (int k = 0; k < 32; ++k) {
      y[k] *= shrink[k / 2 % 2];
      s[k] = exp2_fast(s[k] * scale - shift[k / 2 % 2]);
      sum[k / 2 % 2] += s[k];
    }
  }

  // Stores lse of the rows; what their sums are to be multiplied by.
  __device__ __forceinline__ float2 finish(float* lse, const int32_t* slots) const {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float all = sum[half] + __shfl_xor_sync(0xffffffffu, sum[half], 1);
      all += __shfl_xor_sync(0xffffffffu, all, 2);
      factor[half] = all == 0 ? 0 : 1 / all;
      const int t = slots[row(2 * half)];
      if (t >= 0 && threadIdx.x % 4 == 0)
        lse[t] = all == 0 ? -INFINITY : top[half] * scale / kLog2E + logf(all);
    }
    return {factor[0], factor[1]};
  }
};

// Rounds the rows of a thread, times their factors, and stores them where the slots say.
__device__ __forceinline__ void store_rows(const Rows& out, const int32_t* slots, const Scores& x,
                                           float2 factor) {
#pragma unroll
  for (int k = 0; k < 32; k += 2) {
    const int t = slots[row(k)];
    const float f = k / 2 % 2 ? factor.y : factor.x;
    if (t >= 0)
      *reinterpret_cast<uint32_t*>(const_cast<char*>(out.at(t, k / 4)) + threadIdx.x % 4 * 4) =
          pack<bf16>(x[k] * f, x[k + 1] * f);
  }
}

// Calls copy(offset in a tile, row, chunk) for this thread's share of its chunks of 16 bytes.
template <class Copy>
__device__ __forceinline__ void for_each_chunk(Copy&& copy) {
#pragma unroll
  for (int item = static_cast<int>(threadIdx.x); item < kTileBytes / 16; item += kThreads)
    copy(chunk_offset<kTile>(item / 8, item % 8), item / 8, item % 8);
}

// Copies the rows in 64 slots to shared memory; zeros for empty slots.
__device__ __forceinline__ void gather(char* tile, const Rows& x, const int32_t* slots) {
  for_each_chunk([&](uint32_t offset, int r, int chunk) {
    const int t = slots[r];
    *reinterpret_cast<uint4*>(tile + offset) =
        t < 0 ? uint4{} : *reinterpret_cast<const uint4*>(x.at(t, chunk));
  });
}

// The same by cp.async, which does not wait for the data.
__device__ __forceinline__ void gather_async(uint32_t tile, const Rows& x, const int32_t* slots) {
  for_each_chunk([&](uint32_t offset, int r, int chunk) {
    const int t = slots[r];
    cp_async_16(tile + offset, x.at(t, chunk), t >= 0);
  });
}

// Scores and dP into P and dS. lse and delta of the 64 queries, which are the columns, or the rows.
template <bool kQueries>
__device__ __forceinline__ void differentiate(Scores& s, Scores& ds, const Direction& d, int mask,
                                              float scale, const float* lse, const float* delta) {
#pragma unroll
  for (int k = 0; k < 32; ++k) {
    const int query = kQueries ? row(k) : column(k);
    s[k] = exp2_fast(s[k] * scale - lse[query] * kLog2E);
    ds[k] = s[k] * (ds[k] - delta[query]);
  }
  hide(s, d, mask, 0), hide(ds, d, mask, 0);
}
}  // namespace weft::ladder::cuda
