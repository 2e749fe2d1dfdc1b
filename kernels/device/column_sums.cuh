// SPDX-License-Identifier: MIT
// Sums over the rows of a matrix in a fixed order, in two stages: blocks leave partial sums of
// their rows in the workspace, then these are added column by column. Nothing depends on the GPU or
// on timing.
#pragma once

#include "kernels/device/cuda.cuh"

#include <algorithm>
#include <cstddef>

namespace weft {
struct ColumnSums {
  float* out = nullptr;
  bool accumulate = false;
};

inline ColumnSums column_sums(const GradView& g) {
  return g ? ColumnSums{g.view.as<float>(), g.accumulate} : ColumnSums{};
}

inline constexpr int kStripeThreads = 256;
inline constexpr int kStripeWarps = kStripeThreads / kWarp;
inline constexpr int kStripeColumns = kWarp * 8;  // columns of a block in the first stage

inline constexpr int64_t kStripeBlocks = 1024;  // of a first stage that does nothing but add

// Stripes of rows for a first stage of about `blocks` blocks: enough to fill a large GPU.
inline int64_t stripes_of(int64_t rows, int64_t cols, int64_t blocks) {
  const int64_t column_blocks = (cols + kStripeColumns - 1) / kStripeColumns;
  return std::clamp<int64_t>(blocks / column_blocks, 1, std::max<int64_t>(1, rows / kStripeWarps));
}

// The end of a first stage: adds the sums of the warps of a block in order. Lane l of each warp
// holds kSums sums of the columns first_column + 8 l .. + 7. partial is (stripes, kSums, cols).
template <int kSums>
using WarpSums = float[kSums][kStripeWarps][kStripeColumns];

template <int kSums>
__device__ __forceinline__ void write_stripe(WarpSums<kSums>& of_warp, float* partial,
                                             int64_t stripe, int64_t first_column, int64_t cols,
                                             const float (&sum)[kSums][8]) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  __syncthreads();  // of_warp may still be read by an earlier call
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
#pragma unroll
    for (int j = 0; j < 8; ++j) of_warp[s][warp][j * kWarp + lane] = sum[s][j];
  }
  __syncthreads();
  // Slot j * 32 + lane holds column lane * 8 + j: neighbouring threads then hit neighbouring banks.
  const int slot = threadIdx.x;
  const int64_t column = first_column + slot % kWarp * 8 + slot / kWarp;
  if (column >= cols) return;
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
    float total = of_warp[s][0][slot];
#pragma unroll
    for (int w = 1; w < kStripeWarps; ++w) total += of_warp[s][w][slot];
    partial[(stripe * kSums + s) * cols + column] = total;
  }
}

// First stage. value(row, first, terms): eight columns' terms, columns first .. first + 7 (zero
// past the end). Grid (column blocks, stripes); warp w takes rows stripe * 8 + w, + 8 * stripes,
// ...
template <class Value>
__global__ void __launch_bounds__(kStripeThreads)
    sum_stripes(float* partial, int64_t rows, int64_t cols, Value value) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first_of_block = static_cast<int64_t>(blockIdx.x) * kStripeColumns;
  const int64_t first = first_of_block + lane * 8;
  float sum[1][8] = {};
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * kStripeWarps + warp;
       first < cols && row < rows; row += static_cast<int64_t>(gridDim.y) * kStripeWarps) {
    float terms[8];
    value(row, first, terms);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[0][j] += terms[j];
  }
  __shared__ WarpSums<1> of_warp;
  write_stripe<1>(of_warp, partial, blockIdx.y, first_of_block, cols, sum);
}

template <int kSums>
struct SumTargets {
  ColumnSums of[kSums];
};

// Second stage: out[c] (+)= sum over stripes of partial[stripe][sum][c]. Grid (columns / 32, sums).
template <int kSums>
__global__ void __launch_bounds__(1024)
    sum_partials(const SumTargets<kSums> outs, const float* partial, int64_t stripes,
                 int64_t cols) {
  ColumnSums out;
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
    out.out = blockIdx.y == s ? outs.of[s].out : out.out;
    out.accumulate = blockIdx.y == s ? outs.of[s].accumulate : out.accumulate;
  }
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0.0f;
  if (column < cols && out.out) {
#pragma unroll 8
    for (int64_t stripe = threadIdx.y; stripe < stripes; stripe += kWarp) {
      sum += partial[(stripe * kSums + blockIdx.y) * cols + column];
    }
  }
  __shared__ float of_part[kWarp][kWarp + 1];
  of_part[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= cols || !out.out) return;
  for (int part = 1; part < kWarp; ++part) sum += of_part[part][threadIdx.x];
  out.out[column] = out.accumulate ? out.out[column] + sum : sum;
}

template <int kSums>
void launch_sum_partials(const CudaQueue& q, const SumTargets<kSums>& outs, const float* partial,
                         int64_t stripes, int64_t cols) {
  if (cols == 0) return;
  const dim3 grid(blocks_for(cols, kWarp), kSums);
  sum_partials<kSums><<<grid, dim3(kWarp, kWarp), 0, q.stream>>>(outs, partial, stripes, cols);
}

template <class Value>
void launch_column_sums(const CudaQueue& q, const ColumnSums& out, int64_t rows, int64_t cols,
                        const Value& value, const char* kernel) {
  if (cols == 0) return;
  const int64_t stripes = stripes_of(rows, cols, kStripeBlocks);
  std::size_t offset = 0;
  auto* partial = take_workspace<float>(q, offset, stripes * cols, kernel);
  const dim3 grid(blocks_for(cols, kStripeColumns), static_cast<unsigned>(stripes));
  sum_stripes<<<grid, kStripeThreads, 0, q.stream>>>(partial, rows, cols, value);
  launch_sum_partials<1>(q, {{out}}, partial, stripes, cols);
}
}  // namespace weft
