// SPDX-License-Identifier: MIT
// DecodeLinear on the tensor cores, f16 and bf16: a block computes 32 rows by 32 columns, each of
// its four warps 16 by 16. Weights are prefetched before the previous kernel has ended.
#pragma once

#include "kernels/device/mma.cuh"
#include "kernels/sampling/decode_linear.cuh"

namespace weft::decode_linear {
inline constexpr int kTile = 32;   // rows and columns of a block
inline constexpr int kDepth = 64;  // columns of x and w in a stage
inline constexpr int kStages = 5;  // in shared memory at a time; all but one under way
inline constexpr int kWarps = 4, kThreads = kWarps * kWarp;
inline constexpr int kTileBytes = kTile * kDepth * 2;

// Rows first .. first + 31 of a matrix (count, inner), columns of one stage: a tile of
// device/mma.cuh.
template <class T>
__device__ __forceinline__ void fetch_tile(uint32_t to, const T* matrix, int64_t first,
                                           int64_t count, int64_t inner, int64_t column) {
  constexpr int kChunks = kDepth / 8;
#pragma unroll
  for (int i = threadIdx.x; i < kTile * kChunks; i += kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const bool inside = first + row < count && column + chunk * 8 < inner;
    const T* from = inside ? matrix + (first + row) * inner + column + chunk * 8 : matrix;
    device::cp_async_16(to + device::chunk_offset<kDepth>(row, chunk), from, inside);
  }
}

// Columns of norm_w and norm_b of one stage.
struct Norms {
  float w[kDepth], b[kDepth];
};

// Zeros beyond the last column.
template <class T>
__device__ __forceinline__ void fetch_norms(Norms& to, const Arguments<T>& a, int64_t column) {
  const int half = threadIdx.x / (kDepth / 4), at = threadIdx.x % (kDepth / 4) * 4;
  if (half > 1) return;
  const float* from = half == 0 ? a.norm_w : a.norm_b;
  const bool inside = column + at < a.inner;
  device::cp_async_16(device::shared_address((half == 0 ? to.w : to.b) + at),
                      inside ? from + column + at : from, inside);
}

// An A fragment with its rows g and g + 8 normalised; `k`: which of the stage.
template <class T>
__device__ __forceinline__ void normalise_fragment(uint32_t (&f)[4], const Norms& norms,
                                                   const Statistics& upper, const Statistics& lower,
                                                   int k) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int c = k * 16 + half * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
    const float2 w = *reinterpret_cast<const float2*>(norms.w + c);
    const float2 b = *reinterpret_cast<const float2*>(norms.b + c);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const Statistics& s = row == 0 ? upper : lower;
      const float2 x = device::unpack<T>(f[half * 2 + row]);
      f[half * 2 + row] = device::pack<T>(normalise(x.x, s, w.x, b.x), normalise(x.y, s, w.y, b.y));
    }
  }
}

// Two neighbouring elements of y in each of two rows, eight apart, and what is added to them.
template <class T>
struct Place {
  int64_t row, column;
  float2 bias = {0, 0};
  uint32_t residual[2] = {0, 0};

  __device__ __forceinline__ bool inside(const Arguments<T>& a, int i) const {
    return row + i * 8 < a.rows && column < a.cols;
  }

  __device__ __forceinline__ void read_bias(const Arguments<T>& a) {
    if (a.b && column < a.cols) bias = {to_float(a.b[column]), to_float(a.b[column + 1])};
  }

  __device__ __forceinline__ void read_residual(const Arguments<T>& a) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (a.residual && inside(a, i))
        residual[i] =
            *reinterpret_cast<const uint32_t*>(a.residual + (row + i * 8) * a.cols + column);
  }

  __device__ __forceinline__ void write(const Arguments<T>& a,
                                        const float (&accumulators)[4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!inside(a, i)) continue;
      const float2 r = device::unpack<T>(residual[i]);
      const float first = activation(accumulators[2 * i] + bias.x, a) + r.x;
      const float second = activation(accumulators[2 * i + 1] + bias.y, a) + r.y;
      *reinterpret_cast<uint32_t*>(a.y + (row + i * 8) * a.cols + column) =
          device::pack<T>(first, second);
    }
  }
};

// The places of a thread's accumulators in a tile of y, with their biases.
template <class T>
__device__ __forceinline__ void find_places(Place<T> (&place)[2], const Arguments<T>& a,
                                            int64_t first_row, int64_t first_column) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    place[n].row = first_row + threadIdx.x % kWarp / 4;
    place[n].column = first_column + n * 8 + threadIdx.x % 4 * 2;
    place[n].read_bias(a);
  }
}

template <class T, bool kNorm>
__global__ void __launch_bounds__(kThreads, 4) mma_kernel(const Arguments<T> a) {
  __shared__ __align__(128) unsigned char tiles[kStages][2][kTileBytes];
  __shared__ Statistics statistics[kTile];
  __shared__ __align__(16) Norms norms[kNorm ? kStages : 1];
  const uint32_t memory = device::shared_address(tiles);
  const auto x_tile = [&](int stage) {
    return memory + static_cast<unsigned>(stage) * 2 * kTileBytes;
  };
  const auto w_tile = [&](int stage) { return x_tile(stage) + kTileBytes; };
  const int64_t first_row = static_cast<int64_t>(blockIdx.x / a.column_blocks) * kTile;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x % a.column_blocks) * kTile;
  const int warp = threadIdx.x / kWarp, row_block = warp / 2, column_block = warp % 2;
  const int stages = static_cast<int>((a.inner + kDepth - 1) / kDepth);
  const auto fetch_w = [&](int i) {
    if (i >= stages) return;
    fetch_tile(w_tile(i % kStages), a.w, first_column, a.cols, a.inner, int64_t{i} * kDepth);
    if constexpr (kNorm) fetch_norms(norms[i % kStages], a, int64_t{i} * kDepth);
  };
  const auto fetch_x = [&](int i) {
    if (i < stages)
      fetch_tile(x_tile(i % kStages), a.x, first_row, a.rows, a.inner, int64_t{i} * kDepth);
    device::cp_async_commit_group();
  };
  Place<T> place[2];
  find_places(place, a, first_row + row_block * 16, first_column + column_block * 16);
  griddepcontrol_launch_dependents();
  for (int i = 0; i < kStages - 1; ++i) fetch_w(i);
  griddepcontrol_wait();
  for (int i = 0; i < kStages - 1; ++i) fetch_x(i);
  for (Place<T>& p : place) p.read_residual(a);
  if constexpr (kNorm)
    row_statistics<kTile / kWarps, true>(statistics + warp * (kTile / kWarps), a,
                                         first_row + warp * (kTile / kWarps));

  float accumulators[2][4] = {};
  for (int i = 0; i < stages; ++i) {
    device::cp_async_wait_group<kStages - 2>();
    __syncthreads();  // the stage is there for all, and the one before it is free
    fetch_w(i + kStages - 1);
    fetch_x(i + kStages - 1);
    const int at = i % kStages, row = row_block * 16 + threadIdx.x % kWarp / 4;
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
      uint32_t x[4], w[4];
      device::ldmatrix(x, device::lane_address<kDepth>(x_tile(at), row_block, k));
      device::ldmatrix(w, device::lane_address<kDepth>(w_tile(at), column_block, k));
      if constexpr (kNorm)
        normalise_fragment<T>(x, norms[at], statistics[row], statistics[row + 8], k);
      device::mma<T>(accumulators[0], x, w[0], w[2]);
      device::mma<T>(accumulators[1], x, w[1], w[3]);
    }
  }
  device::cp_async_wait_all();
#pragma unroll
  for (int n = 0; n < 2; ++n) place[n].write(a, accumulators[n]);
}

template <class T>
void launch_mma(CudaQueue& queue, Arguments<T> a) {
  a.column_blocks = blocks_for(a.cols, kTile);
  const unsigned blocks = blocks_for((a.rows + kTile - 1) / kTile * a.column_blocks, 1);
  launch_dependent(queue, a.norm_w ? mma_kernel<T, true> : mma_kernel<T, false>, blocks, kThreads,
                   a);
}
}  // namespace weft::decode_linear
