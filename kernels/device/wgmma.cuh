// SPDX-License-Identifier: MIT
// wgmma, the matrix instructions of a warpgroup on sm_90a (PTX ISA, "Asynchronous Warpgroup Level
// Matrix Instructions").
// Accumulators (64 x N, f32): lane 4 g + t of warp w holds columns 8 j + 2 t and 8 j + 2 t + 1
//   of row 16 w + g      in c[4 j],     c[4 j + 1]
//   of row 16 w + g + 8  in c[4 j + 2], c[4 j + 3]
// Two neighbouring j, rounded to 16 bits, are the A operand of 16 columns.
// Tiles in shared memory have 64 rows, in panels of 64 columns (128 bytes a row, 8 KiB), which
// start at multiples of 1024 bytes: chunk c (16 bytes) of row r lies at c ^ (r & 7), the 128-byte
// swizzle. The same tile serves as A, as B^T (its rows are columns of the result) and as B (its
// rows are summed over).
#pragma once

#include "kernels/device/mma.cuh"
#include "kernels/device/storage.cuh"

namespace weft::device {
// Tells the compiler that x is the same in all lanes: descriptors are read from uniform registers.
__device__ __forceinline__ int warp_uniform(int x) { return __reduce_max_sync(0xffffffffu, x); }

// The two rows of a tile that this thread has accumulators of: 16 w + g, and that + 8.
__device__ __forceinline__ int row_of(int half) {
  return threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 4 + half * 8;
}

// ---- matrix instructions ----

// The lower half of the matrix descriptor of a tile; the upper half is the same for all. Fields are
// in units of 16 bytes: groups of 8 rows are 1024 bytes apart, panels 8 KiB.
using Descriptor = uint32_t;

__device__ __forceinline__ Descriptor descriptor(SharedAddress address) {
  constexpr uint32_t kPanels = kPanel / 16 << 16;
  return kPanels | address >> 4;  // shared memory ends below 2^18
}

__device__ __forceinline__ uint32_t address_of(Descriptor low) { return (low & 0x3fff) << 4; }

__device__ __forceinline__ uint64_t full_descriptor(Descriptor low) {
  constexpr uint32_t kSwizzle = 1u << 30, kGroups = 1024 / 16;
  uint64_t r;
  asm("mov.b64 %0, {%1, %2};" : "=l"(r) : "r"(low), "r"(kSwizzle | kGroups));
  return r;
}

inline constexpr int kColumnStep = 16 * 2 / 16, kRowStep = 16 * 128 / 16;  // 16 columns, 16 rows

#define WEFT_ACCUMULATORS_8(c, i)                                                             \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])
#define WEFT_ACCUMULATORS_16(c, i) WEFT_ACCUMULATORS_8(c, i), WEFT_ACCUMULATORS_8(c, i + 8)
#define WEFT_ACCUMULATORS_32(c, i) WEFT_ACCUMULATORS_16(c, i), WEFT_ACCUMULATORS_16(c, i + 16)
#define WEFT_ACCUMULATORS_64(c, i) WEFT_ACCUMULATORS_32(c, i), WEFT_ACCUMULATORS_32(c, i + 32)
#define WEFT_ACCUMULATORS_96(c, i) WEFT_ACCUMULATORS_64(c, i), WEFT_ACCUMULATORS_32(c, i + 64)
#define WEFT_NAMES_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define WEFT_NAMES_32 \
  WEFT_NAMES_16       \
  ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define WEFT_NAMES_64                                                \
  WEFT_NAMES_32                                                      \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47" \
  ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define WEFT_NAMES_96                                                \
  WEFT_NAMES_64                                                      \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79" \
  ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define WEFT_WGMMA_OF(n, type, names, acc, add, operands, ...)                         \
  WEFT_SM90_ASM("{\n.reg .pred p;\nsetp.ne.b32 p, " add                                \
                ", 0;\nwgmma.mma_async.sync.aligned.m64n" n "k16.f32." type " {" names \
                "}, " operands ";\n}\n"                                                \
                : acc                                                                  \
                : "r"(add_to), __VA_ARGS__)
#define WEFT_WGMMA(n, count, ...)                                                       \
  if constexpr (dtype_of<T> == DType::bf16)                                             \
    WEFT_WGMMA_OF(#n, "bf16.bf16", WEFT_NAMES_##count, WEFT_ACCUMULATORS_##count(c, 0), \
                  __VA_ARGS__);                                                         \
  else                                                                                  \
    WEFT_WGMMA_OF(#n, "f16.f16", WEFT_NAMES_##count, WEFT_ACCUMULATORS_##count(c, 0), __VA_ARGS__)
#define WEFT_WGMMA_SHARED(function, n, count, add, operands)                               \
  template <class T>                                                                       \
  __device__ __forceinline__ void function(float(&c)[count], Descriptor a, Descriptor b,   \
                                           int add_to) {                                   \
    WEFT_WGMMA(n, count, add, operands, "l"(full_descriptor(a)), "l"(full_descriptor(b))); \
  }
#define WEFT_WGMMA_REGISTERS(n, count, add, operands)                                          \
  template <class T, bool kTransposed>                                                         \
  __device__ __forceinline__ void wgmma(float(&c)[count], const uint32_t(&a)[4], Descriptor b, \
                                        int add_to) {                                          \
    WEFT_WGMMA(n, count, add, operands, "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),            \
               "l"(full_descriptor(b)), "n"(kTransposed ? 0 : 1));                             \
  }

// One k-step of 16 over n columns: c = A B^T, or c += A B^T where add_to is not 0.
WEFT_WGMMA_SHARED(wgmma, 32, 16, "%16", "%17, %18, p, 1, 1, 0, 0")
WEFT_WGMMA_SHARED(wgmma, 64, 32, "%32", "%33, %34, p, 1, 1, 0, 0")
WEFT_WGMMA_SHARED(wgmma, 128, 64, "%64", "%65, %66, p, 1, 1, 0, 0")
// c = A B, or c += A B where add_to is not 0.
WEFT_WGMMA_SHARED(wgmma_ab, 128, 64, "%64", "%65, %66, p, 1, 1, 0, 1")
// A in registers; kTransposed: B^T lies in memory, else B.
WEFT_WGMMA_REGISTERS(64, 32, "%32", "{%33, %34, %35, %36}, %37, p, 1, 1, %38")
WEFT_WGMMA_REGISTERS(128, 64, "%64", "{%65, %66, %67, %68}, %69, p, 1, 1, %70")
// Both in shared memory, summed over their rows: c = A^T B, or c += A^T B where add_to is not 0.
WEFT_WGMMA_SHARED(wgmma_atb, 64, 32, "%32", "%33, %34, p, 1, 1, 1, 1")
WEFT_WGMMA_SHARED(wgmma_atb, 128, 64, "%64", "%65, %66, p, 1, 1, 1, 1")
WEFT_WGMMA_SHARED(wgmma_atb, 192, 96, "%96", "%97, %98, p, 1, 1, 1, 1")

// Keeps the compiler from moving uses of accumulators or operands across this point.
template <int N>
__device__ __forceinline__ void pin(float (&c)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(c[i])::"memory");
}

__device__ __forceinline__ void pin(uint32_t (&a)[4][4]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}

// Before the first wgmma that reads accumulators or A operands which ordinary instructions wrote.
__device__ __forceinline__ void wgmma_fence() {
  WEFT_SM90_ASM("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit_group() {
  WEFT_SM90_ASM("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  WEFT_SM90_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// The 64 rows that a warpgroup owns, P columns, as A operand: in registers, or in shared memory.
template <int P, bool kInRegisters>
struct Owned {
  uint32_t a[kInRegisters ? P / 16 : 1][4];
  Descriptor tile;

  __device__ __forceinline__ void load(SharedAddress x) {
    tile = descriptor(x);
    if constexpr (kInRegisters) {
#pragma unroll
      for (int k = 0; k < P / 16; ++k)
        ldmatrix(a[k], lane_address<64>(x + k / 4 * kPanel, threadIdx.x % kWarpgroup / 32, k % 4));
    }
  }

  // s = A B^T, B the 64 rows of a descriptor.
  template <class T>
  __device__ __forceinline__ void mma_abt(float (&s)[32], Descriptor b) const {
#pragma unroll
    for (int k = 0; k < P / 16; ++k) {
      const int step = k / 4 * (kPanel / 16) + k % 4 * kColumnStep;
      if constexpr (kInRegisters)
        wgmma<T, true>(s, a[k], b + step, k > 0);
      else
        wgmma<T>(s, tile + step, b + step, k > 0);
    }
  }

  // The same, same bits, for the rows of this warp alone: synchronous, by mma.sync.
  template <class T>
  __device__ __forceinline__ void mma_abt_in_warp(float (&s)[32], SharedAddress other) const {
    Accumulators<1, 64> c;
    c.clear();
#pragma unroll(kInRegisters ? P / 16 : 1)
    for (int k = 0; k < P / 16; ++k) {
      const int panel = k / 4 * kPanel;
      uint32_t rows[1][4];
      if constexpr (kInRegisters) {
#pragma unroll
        for (int i = 0; i < 4; ++i) rows[0][i] = a[k][i];
      } else {
        ldmatrix(rows[0],
                 lane_address<64>(address_of(tile) + panel, threadIdx.x % kWarpgroup / 32, k % 4));
      }
      mma_abt_step<T, 64>(c, rows, other + panel, 0, k % 4);
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) s[i] = c.c[0][i / 4][i % 4];
  }
};

// ---- several k-steps, between wgmma_fence() and wgmma_commit_group() ----

// c = A B^T over P columns of the tiles at two addresses.
template <class T, int P, int N>
__device__ __forceinline__ void mma_abt(float (&c)[N], SharedAddress a, SharedAddress b) {
  const Descriptor da = descriptor(a), db = descriptor(b);
#pragma unroll
  for (int k = 0; k < P / 16; ++k) {
    const int step = k / 4 * (kPanel / 16) + k % 4 * kColumnStep;
    wgmma<T>(c, da + step, db + step, k > 0);
  }
}

// c = A B, or c += A B where add_to is not 0: 16 kSteps columns of A, as many rows of B.
template <class T, int kSteps, int N>
__device__ __forceinline__ void mma_ab(float (&c)[N], const uint32_t (&a)[kSteps][4], Descriptor b,
                                       int add_to) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k) wgmma<T, false>(c, a[k], b + k * kRowStep, add_to || k > 0);
}

// c = A^T B, or c += A^T B where add_to is not 0: 64 rows of both.
template <class T, int N>
__device__ __forceinline__ void mma_atb(float (&c)[N], Descriptor a, Descriptor b, int add_to) {
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma_atb<T>(c, a + k * kRowStep, b + k * kRowStep, add_to || k > 0);
}

// ---- operands ----

// Accumulators of 16 kSteps columns, rounded, as an A operand.
template <class T, int kSteps>
__device__ __forceinline__ void round_to_operand(uint32_t (&a)[kSteps][4],
                                                 const float (&s)[kSteps * 8]) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) a[k][i] = pack<T>(s[8 * k + 2 * i], s[8 * k + 2 * i + 1]);
}

// An A operand to a panel in shared memory, from its step `first` on; by a warpgroup.
template <int kSteps>
__device__ __forceinline__ void store_operand(const Panel& panel, const uint32_t (&a)[kSteps][4],
                                              int first = 0) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
    stmatrix(lane_address<64>(panel, threadIdx.x % kWarpgroup / 32, first + k), a[k]);
}

// The first and the second value of a pack().
template <class T>
__device__ __forceinline__ float low_half(uint32_t pair) {
  if constexpr (dtype_of<T> == DType::bf16) return __uint_as_float(pair << 16);
  float x;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, low;\n}\n"
      : "=f"(x)
      : "r"(pair));
  return x;
}

template <class T>
__device__ __forceinline__ float high_half(uint32_t pair) {
  if constexpr (dtype_of<T> == DType::bf16) return __uint_as_float(pair & 0xffff0000u);
  return low_half<T>(pair >> 16);
}

// Adds the dot product of two pairs, or of eight values each, to `sum`.
template <class T>
__device__ __forceinline__ float add_dot(float sum, uint32_t a, uint32_t b) {
  sum = fmaf(low_half<T>(a), low_half<T>(b), sum);
  return fmaf(high_half<T>(a), high_half<T>(b), sum);
}

template <class T>
__device__ __forceinline__ float add_dot(float sum, const uint4& a, const uint4& b) {
  sum = add_dot<T>(sum, a.x, b.x);
  sum = add_dot<T>(sum, a.y, b.y);
  sum = add_dot<T>(sum, a.z, b.z);
  return add_dot<T>(sum, a.w, b.w);
}
}  // namespace weft::device
