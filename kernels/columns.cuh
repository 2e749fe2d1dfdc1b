// SPDX-License-Identifier: MIT
// Sums over the rows of a matrix in a fixed order, in two stages: blocks leave partial sums of their rows in
// the workspace, then partial sums are added column by column. Nothing depends on the GPU or on timing.
#pragma once

#include <algorithm>

#include "kernels/cuda.cuh"

namespace weft {

// Where the sums of `cols` columns go, or null.
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

// How many stripes of rows the first stage is cut into: enough blocks to fill a large GPU, not more partial
// sums than that needs.
inline std::int64_t stripes_of(std::int64_t rows, std::int64_t cols) {
  const std::int64_t column_blocks = (cols + kStripeColumns - 1) / kStripeColumns;
  return std::clamp<std::int64_t>(1024 / column_blocks, 1, std::max<std::int64_t>(1, rows / kStripeWarps));
}

// First stage. value(row, first, terms): eight columns' terms of kSums sums, columns first .. first + 7 (zero
// past the end). partial is (stripes, kSums, cols). Grid (column blocks, stripes); warp w takes rows stripe *
// 8 + w, + 8 * stripes, ...
template <int kSums, class Value>
__global__ void __launch_bounds__(kStripeThreads)
    sum_stripes(float* partial, std::int64_t rows, std::int64_t cols, Value value) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kStripeColumns + lane * 8;
  float sum[kSums][8] = {};
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kStripeWarps + warp;
       first < cols && row < rows; row += static_cast<std::int64_t>(gridDim.y) * kStripeWarps) {
    float terms[kSums][8];
    value(row, first, terms);
#pragma unroll
    for (int s = 0; s < kSums; ++s) {
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[s][j] += terms[s][j];
    }
  }
  __shared__ float of_warp[kSums][kStripeWarps][kStripeColumns];
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
#pragma unroll
    for (int j = 0; j < 8; ++j) of_warp[s][warp][j * kWarp + lane] = sum[s][j];
  }
  __syncthreads();
  // Slot j * 32 + lane holds column lane * 8 + j: neighbouring threads then hit neighbouring banks.
  const int slot = threadIdx.x;
  const std::int64_t column =
      static_cast<std::int64_t>(blockIdx.x) * kStripeColumns + slot % kWarp * 8 + slot / kWarp;
  if (column >= cols) return;
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
    float total = of_warp[s][0][slot];
#pragma unroll
    for (int w = 1; w < kStripeWarps; ++w) total += of_warp[s][w][slot];
    partial[(static_cast<std::int64_t>(blockIdx.y) * kSums + s) * cols + column] = total;
  }
}

// Second stage: out[c] (+)= sum over stripes of partial[stripe][sum][c]. Grid (columns / 32, sums), block
// (32, 32).
template <int kSums>
__global__ void __launch_bounds__(1024)
    sum_partials(const ColumnSums out0, const ColumnSums out1, const float* partial, std::int64_t stripes,
                 std::int64_t cols) {
  const ColumnSums out = blockIdx.y == 0 ? out0 : out1;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0.0f;
  if (column < cols && out.out) {
    for (std::int64_t stripe = threadIdx.y; stripe < stripes; stripe += kWarp) {
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
void launch_sum_partials(const CudaQueue& q, ColumnSums out0, ColumnSums out1, const float* partial,
                         std::int64_t stripes, std::int64_t cols) {
  const dim3 grid(blocks_for(cols, kWarp), kSums);
  sum_partials<kSums><<<grid, dim3(kWarp, kWarp), 0, q.stream>>>(out0, out1, partial, stripes, cols);
}

// Both stages.
template <int kSums, class Value>
void launch_column_sums(const CudaQueue& q, ColumnSums out0, ColumnSums out1, std::int64_t rows,
                        std::int64_t cols, const Value& value, const char* kernel) {
  if (cols == 0) return;
  const std::int64_t stripes = stripes_of(rows, cols);
  std::size_t offset = 0;
  auto* partial = take_workspace<float>(q, offset, stripes * kSums * cols, kernel);
  const dim3 grid(blocks_for(cols, kStripeColumns), static_cast<unsigned>(stripes));
  sum_stripes<kSums><<<grid, kStripeThreads, 0, q.stream>>>(partial, rows, cols, value);
  launch_sum_partials<kSums>(q, out0, out1, partial, stripes, cols);
}

}  // namespace weft
