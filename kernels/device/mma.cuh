// SPDX-License-Identifier: MIT
// mma.sync.m16n8k16, the tensor-core instruction of a warp, over 16-bit tiles in shared memory, f32
// accumulators. Fragments (PTX ISA, "Matrix fragments for mma.m16n8k16"), lane = 4 g + t:
//   A (16 x 16)  a0: row g, columns 2t, 2t+1   a1: row g+8   a2, a3: the same rows, columns + 8
//   B (16 x 8)   b0: rows 2t, 2t+1, column g   b1: rows + 8
//   C (16 x 8)   c0, c1: row g, columns 2t, 2t+1   c2, c3: row g+8
// so that two neighbouring C tiles, rounded, are one A fragment: probabilities never leave the
// registers.
#pragma once

#include "kernels/device/mbarrier.cuh"
#include "kernels/device/storage.cuh"
#include "kernels/dtype.h"

namespace weft::device {
// ---- instructions ----

// Four 8 x 8 matrices; lanes 8 i .. 8 i + 7 give the addresses of the rows of matrix i. `r[i]`
// holds row g, columns 2t, 2t+1 of matrix i, or of its transpose.
__device__ __forceinline__ void ldmatrix(uint32_t (&r)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row));
}

__device__ __forceinline__ void ldmatrix_trans(uint32_t (&r)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row));
}

// Four 8 x 8 matrices to shared memory: the reverse of ldmatrix().
__device__ __forceinline__ void stmatrix(uint32_t row, const uint32_t (&r)[4]) {
  WEFT_SM90_ASM("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row),
                "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                : "memory");
}

// The same of their transposes: the reverse of ldmatrix_trans().
__device__ __forceinline__ void stmatrix_trans(uint32_t row, const uint32_t (&r)[4]) {
  WEFT_SM90_ASM("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row),
                "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                : "memory");
}

#define WEFT_MMA(type)                                                      \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type                \
               ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])             \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

template <class T>
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  if constexpr (dtype_of<T> == DType::bf16)
    WEFT_MMA("bf16.bf16");
  else
    WEFT_MMA("f16.f16");
}

// Two values rounded to T, `low` in the lower half.
template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t r;
  if constexpr (dtype_of<T> == DType::bf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// The same in f16, where values above the largest number become that number; NaN stays NaN.
__device__ __forceinline__ uint32_t pack_f16_saturated(float low, float high) {
  uint32_t r;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

template <class T>
__device__ __forceinline__ float2 unpack(uint32_t x) {
  if constexpr (dtype_of<T> == DType::bf16)
    return {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)};
  else {
    float2 r;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
        : "=f"(r.x), "=f"(r.y)
        : "r"(x));
    return r;
  }
}

// exp(x) = exp2_fast(x * kLog2E).
inline constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- tiles in shared memory ----

// A tile has rows of P 16-bit elements in chunks of 16 bytes. Chunks are permuted within a row so
// that the same chunk of 8 neighbouring rows lies in 8 different groups of banks.
template <int P>
__device__ constexpr uint32_t swizzle(uint32_t row) {
  return P == 32 ? (row >> 1) & 3 : row & 7;
}

template <int P>
__device__ constexpr uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * (P * 2) + ((chunk ^ swizzle<P>(row)) << 4);
}

// What a lane passes to ldmatrix() for the 16 x 16 block at (16 block_row, 16 block_column) of a
// tile: matrices go down first, then right. That is the order of an A fragment, and, transposed, of
// two B fragments side by side; read as B of A B^T, matrices 0 and 2 are one fragment, 1 and 3 the
// next.
template <int P>
__device__ __forceinline__ uint32_t lane_address(SharedAddress tile, int block_row,
                                                 int block_column) {
  const uint32_t lane = threadIdx.x & 31, row = lane & 15, chunk = lane >> 4;
  const uint32_t in_block =
      row * (P * 2) + (((chunk ^ swizzle<P>(row)) << 4) ^ (block_column * 32));
  return tile + block_row * (16 * P * 2) + in_block;
}

// ---- tiles of a warp ----

// M blocks of 16 rows by N columns, as C fragments.
template <int M, int N>
struct Accumulators {
  float c[M][N / 8][4];

  __device__ void clear() {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) c[m][n][i] = 0;
  }
};

template <int M, int K>
struct Fragments {
  uint32_t a[M][K / 16][4];
};

template <int M, int K, int P>
__device__ __forceinline__ void load_fragments(Fragments<M, K>& f, uint32_t tile, int block_row) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int k = 0; k < K / 16; ++k) ldmatrix(f.a[m][k], lane_address<P>(tile, block_row + m, k));
}

template <class T, int M, int N>
__device__ __forceinline__ void round_to_fragments(Fragments<M, N>& f,
                                                   const Accumulators<M, N>& s) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int k = 0; k < N / 16; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&c)[4] = s.c[m][2 * k + i / 2];
        f.a[m][k][i] = pack<T>(c[i % 2 * 2], c[i % 2 * 2 + 1]);
      }
}

// One k-step of c += A B^T, with B rows (N of them) from block row `b_row` of its tile.
template <class T, int P, int M, int N>
__device__ __forceinline__ void mma_abt_step(Accumulators<M, N>& c, const uint32_t (&a)[M][4],
                                             uint32_t b_tile, int b_row, int k) {
#pragma unroll
  for (int n = 0; n < N / 16; ++n) {
    uint32_t r[4];
    ldmatrix(r, lane_address<P>(b_tile, b_row + n, k));
#pragma unroll
    for (int m = 0; m < M; ++m) {
      mma<T>(c.c[m][2 * n], a[m], r[0], r[2]);
      mma<T>(c.c[m][2 * n + 1], a[m], r[1], r[3]);
    }
  }
}

// c = A B^T, A from block row `a_row` of its tile.
template <class T, int M, int N, int P>
__device__ __forceinline__ void mma_abt(Accumulators<M, N>& c, uint32_t a_tile, int a_row,
                                        uint32_t b_tile, int b_row) {
  c.clear();
#pragma unroll 2  // unrolled further, loads run so far ahead that accumulators are spilled
  for (int k = 0; k < P / 16; ++k) {
    uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m) ldmatrix(a[m], lane_address<P>(a_tile, a_row + m, k));
    mma_abt_step<T, P>(c, a, b_tile, b_row, k);
  }
}

template <class T, int M, int N, int P>
__device__ __forceinline__ void mma_abt(Accumulators<M, N>& c, const Fragments<M, P>& f,
                                        uint32_t b_tile, int b_row) {
  c.clear();
#pragma unroll
  for (int k = 0; k < P / 16; ++k) {
    uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) a[m][i] = f.a[m][k][i];
    mma_abt_step<T, P>(c, a, b_tile, b_row, k);
  }
}

// c += A B, B = K rows from block row `b_row` of its tile.
template <class T, int M, int K, int P>
__device__ __forceinline__ void mma_ab(Accumulators<M, P>& c, const Fragments<M, K>& a,
                                       uint32_t b_tile, int b_row) {
#pragma unroll
  for (int k = 0; k < K / 16; ++k)
#pragma unroll
    for (int n = 0; n < P / 16; ++n) {
      uint32_t r[4];
      ldmatrix_trans(r, lane_address<P>(b_tile, b_row + k, n));
#pragma unroll
      for (int m = 0; m < M; ++m) {
        mma<T>(c.c[m][2 * n], a.a[m][k], r[0], r[1]);
        mma<T>(c.c[m][2 * n + 1], a.a[m][k], r[2], r[3]);
      }
    }
}
}  // namespace weft::device
