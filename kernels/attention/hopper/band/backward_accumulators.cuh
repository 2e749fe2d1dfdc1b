// SPDX-License-Identifier: MIT
// Backward over a band: transposed accumulators (rows are keys) between MMAs, and their epilogue.
#pragma once

#include "kernels/attention/hopper/band/backward_memory.cuh"
#include "kernels/attention/hopper/masks.cuh"

namespace weft::attention::hopper {
// Scores into probabilities; `lse` of the queries in shared memory, `scale` times log2(e).
template <int N>
__device__ __forceinline__ void exponentiate(float (&s)[N], SharedAddress lse, float scale) {
#pragma unroll
  for (int j = 0; j < N / 4; ++j) {
    const float2 of_column = ld_shared_float2(lse + (8 * j + threadIdx.x % 4 * 2) * 4);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      s[4 * j + i] =
          exp2_fast(fmaf(s[4 * j + i], scale, (i % 2 ? of_column.y : of_column.x) * -kLog2E));
  }
}

// dP into dS; `delta` of the queries in shared memory.
template <int N>
__device__ __forceinline__ void differentiate(float (&dp)[N], const float (&p)[N],
                                              SharedAddress delta) {
#pragma unroll
  for (int j = 0; j < N / 4; ++j) {
    const float2 of_column = ld_shared_float2(delta + (8 * j + threadIdx.x % 4 * 2) * 4);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      dp[4 * j + i] = p[4 * j + i] * (dp[4 * j + i] - (i % 2 ? of_column.y : of_column.x));
  }
}

template <class T, int kSteps>
__device__ __forceinline__ void round_steps(uint32_t (&a)[kSteps][4],
                                            const float (&s)[kSteps * 8]) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) a[k][i] = pack<T>(s[8 * k + 2 * i], s[8 * k + 2 * i + 1]);
}

// 64 columns of accumulators times `factor`, rounded, to a panel in shared memory.
template <class T, int N>
__device__ __forceinline__ void put_panel(const float (&c)[N], int panel, float factor,
                                          SharedAddress out) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    uint32_t r[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int first = 32 * panel + 8 * k + 2 * i;
      r[i] = pack<T>(c[first] * factor, c[first + 1] * factor);
    }
    stmatrix(lane_address<64>(out, threadIdx.x % kWarpgroup / 32, k), r);
  }
}

// The same, and on to global memory; by all threads of warpgroup `group`. `out`: a panel that
// nobody reads any more once at most kPending stores of the thread that leads are under way.
template <class T, int kPending = 0, int N>
__device__ __forceinline__ void send_panel(int group, const float (&c)[N], int panel, float factor,
                                           SharedAddress out, const CUtensorMap& to,
                                           const BandBackward& g, const TileCoord& at) {
  if (is_warpgroup_leader()) tma_store_wait_group_read<kPending>();
  warpgroup_sync(group);
  put_panel<T>(c, panel, factor, out);
  fence_proxy_async();
  warpgroup_sync(group);
  if (is_warpgroup_leader()) store_panel(to, out, panel, g.tiles, at, g.accumulate);
}
}  // namespace weft::attention::hopper
