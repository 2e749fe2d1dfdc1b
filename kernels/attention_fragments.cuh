// SPDX-License-Identifier: MIT
// What happens to fragments between the products: masks, and rounded sums on their way to memory.
#pragma once

#include "kernels/attention_walk.cuh"

namespace weft::attention {

inline constexpr float kLog2E = 1.4426950408889634f;

// Sets what is masked of a warp's sums to `value`: rows of the block from first_row, columns of the tile from
// first_column.
template <int M, int N, class Stream>
__device__ __forceinline__ void apply_mask(Sums<M, N>& s, const Stream& stream, int first_row,
                                           int first_column, float value) {
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint64_t word =
          stream.mask_word(first_row + m * 16 + half * 8 + g) >> (first_column + 2 * t);
#pragma unroll
      for (int n = 0; n < N / 8; ++n) {
        if (!(word >> (8 * n) & 1)) s.c[m][n][2 * half] = value;
        if (!(word >> (8 * n + 1) & 1)) s.c[m][n][2 * half + 1] = value;
      }
    }
}

template <int M>
__device__ __forceinline__ void fill(float (&x)[M][2], float value) {
#pragma unroll
  for (int m = 0; m < M; ++m) x[m][0] = x[m][1] = value;
}

// Rounds a warp's sums times factor[m][g or g+8] to T and stores them as rows `first_row ..` of the block;
// `staging` is (rows of the block) x P in shared memory, of which the warp uses its own rows.
template <class T, int M, int P, int kTiles>
__device__ __forceinline__ void store_rows(char* staging, const Sums<M, P>& s, const float (&factor)[M][2],
                                           const Task<kTiles>& task, int first_row, const Rows& out) {
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < P / 8; ++n)
        *reinterpret_cast<std::uint32_t*>(staging + chunk_offset<P>(first_row + m * 16 + half * 8 + g, n) +
                                          t * 4) =
            pack<T>(s.c[m][n][2 * half] * factor[m][half], s.c[m][n][2 * half + 1] * factor[m][half]);
  __syncwarp();
#pragma unroll
  for (int item = lane; item < 16 * M * (P / 8); item += 32) {
    const int row = first_row + item / (P / 8), chunk = item % (P / 8), position = task.position(row);
    if (position >= 0 && chunk < static_cast<int>(out.chunks))
      *reinterpret_cast<uint4*>(const_cast<char*>(out.at(position, chunk))) =
          *reinterpret_cast<const uint4*>(staging + chunk_offset<P>(row, chunk));
  }
  __syncwarp();
}

}  // namespace weft::attention
