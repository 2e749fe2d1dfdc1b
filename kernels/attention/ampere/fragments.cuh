// SPDX-License-Identifier: MIT
// What happens to fragments between the MMAs: masks, and the epilogue: rounded accumulators to
// memory.
#pragma once

#include "kernels/attention/ampere/mainloop.cuh"

namespace weft::attention::ampere {
// Sets masked accumulators of a warp to `value`; rows count from first_row, columns from
// first_column.
template <int M, int N, class Stream>
__device__ __forceinline__ void apply_mask(Accumulators<M, N>& s, const Stream& stream,
                                           int first_row, int first_column, float value) {
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint64_t word =
          stream.mask_word(first_row + m * 16 + half * 8 + g) >> (first_column + 2 * t);
#pragma unroll
      for (int n = 0; n < N / 8; ++n) {
        if (!(word >> (8 * n) & 1)) s.c[m][n][2 * half] = value;
        if (!(word >> (8 * n + 1) & 1)) s.c[m][n][2 * half + 1] = value;
      }
    }
}

// Factors of rows: accumulators times `now`, plus what earlier passes left times `before`.
template <int M>
struct RowFactors {
  float now[M][2], before[M][2];
  bool accumulate;

  __device__ RowFactors(float factor, bool accumulate)
      : accumulate(accumulate) {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) now[m][half] = factor, before[m][half] = 1;
  }
};

// Rounds a warp's accumulators to T and stores them as rows `first_row ..` of the task; `staging`
// is (rows of the task) x P in shared memory, of which the warp uses its own rows.
template <class T, int M, int P, class Task>
__device__ __forceinline__ void store_rows(char* staging, const Accumulators<M, P>& s,
                                           const RowFactors<M>& factors, const Task& task,
                                           int first_row, const Rows& out) {
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + m * 16 + half * 8 + g;
      const int position = factors.accumulate ? task.position(row) : -1;
#pragma unroll
      for (int n = 0; n < P / 8; ++n) {
        float2 x = {s.c[m][n][2 * half] * factors.now[m][half],
                    s.c[m][n][2 * half + 1] * factors.now[m][half]};
        if (position >= 0 && n < static_cast<int>(out.chunks)) {
          const float2 there =
              unpack<T>(*reinterpret_cast<const uint32_t*>(out.at(position, n) + t * 4));
          x.x = fmaf(there.x, factors.before[m][half], x.x);
          x.y = fmaf(there.y, factors.before[m][half], x.y);
        }
        *reinterpret_cast<uint32_t*>(staging + chunk_offset<P>(row, n) + t * 4) = pack<T>(x.x, x.y);
      }
    }
  __syncwarp();
#pragma unroll
  for (int item = lane; item < 16 * M * (P / 8); item += 32) {
    const int row = first_row + item / (P / 8), chunk = item % (P / 8),
              position = task.position(row);
    if (position >= 0 && chunk < static_cast<int>(out.chunks))
      *reinterpret_cast<uint4*>(const_cast<char*>(out.at(position, chunk))) =
          *reinterpret_cast<const uint4*>(staging + chunk_offset<P>(row, chunk));
  }
  __syncwarp();
}
}  // namespace weft::attention::ampere
