#pragma once
#include "kernels/device/mbarrier.cuh"
#include "kernels/device/cuda.cuh"
namespace weft::device {
inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(static_cast<const unsigned char*>(p) - emu::shared_memory()) + 1024;
}
unsigned char* at(std::uint32_t a, int bytes);  // checked
struct Copy { std::uint32_t to; const void* from; bool valid; };
void cp_async(const Copy&);
void cp_async_commit_group();
void cp_async_wait(int pending);
inline void cp_async_16(std::uint32_t to, const void* from, bool valid) { cp_async({to, from, valid}); }
inline void cp_async_wait_all() { cp_async_wait(0); }
inline void cp_async_wait_all_but_last() { cp_async_wait(1); }
inline void st_shared_float(std::uint32_t a, float x) { std::memcpy(at(a, 4), &x, 4); }
inline float2 ld_shared_float2(std::uint32_t a) { float2 r; std::memcpy(&r, at(a, 8), 8); return r; }
inline uint4 ld_shared_16(std::uint32_t a) { uint4 r; std::memcpy(&r, at(a, 16), 16); return r; }
inline void ldmatrix(std::uint32_t (&r)[4], std::uint32_t row) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) { const auto a = emu_bits(row, 8 * i + g); at(a, 16); std::memcpy(&r[i], at(a + 4 * t, 4), 4); }
}
inline void ldmatrix_trans(std::uint32_t (&r)[4], std::uint32_t row) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) {
    std::uint16_t x[2];
    for (int j = 0; j < 2; ++j) { const auto a = emu_bits(row, 8 * i + 2 * t + j); std::memcpy(&x[j], at(a + 2 * g, 2), 2); }
    r[i] = x[0] | std::uint32_t{x[1]} << 16;
  }
}
template <class T> inline float2 unpack(std::uint32_t x) {
  T l, h; std::uint16_t a = x & 0xffff, b = x >> 16; std::memcpy(&l, &a, 2); std::memcpy(&h, &b, 2);
  return {to_float(l), to_float(h)};
}
template <class T> inline std::uint32_t pack(float low, float high) {
  const T l = from_float<T>(low), h = from_float<T>(high); std::uint16_t a, b; std::memcpy(&a, &l, 2); std::memcpy(&b, &h, 2);
  return a | std::uint32_t{b} << 16;
}
template <class T> inline void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  float A[2][16], B[2][16];
  for (int s = 0; s < 4; ++s) for (int half = 0; half < 2; ++half) {  // source lane 4 g + s holds columns 2s, 2s+1 (+8)
    const float2 up = unpack<T>(emu_bits(a[half * 2], 4 * g + s)), low = unpack<T>(emu_bits(a[half * 2 + 1], 4 * g + s));
    A[0][half * 8 + 2 * s] = up.x, A[0][half * 8 + 2 * s + 1] = up.y, A[1][half * 8 + 2 * s] = low.x, A[1][half * 8 + 2 * s + 1] = low.y;
    for (int j = 0; j < 2; ++j) {  // column 2 t + j is in lanes 4 (2 t + j) + s
      const float2 b = unpack<T>(emu_bits(half ? b1 : b0, 4 * (2 * t + j) + s));
      B[j][half * 8 + 2 * s] = b.x, B[j][half * 8 + 2 * s + 1] = b.y;
    }
  }
  for (int i = 0; i < 4; ++i) { double sum = 0; for (int k = 0; k < 16; ++k) sum += double(A[i / 2][k]) * B[i % 2][k]; c[i] = float(c[i] + sum); }
}
inline constexpr float kLog2E = 1.4426950408889634f;
inline float exp2_fast(float x) { return std::exp2(x); }
// ---- tiles in shared memory ----

// A tile has rows of P 16-bit elements in chunks of 16 bytes. Chunks are permuted within a row so that the
// same chunk of 8 neighbouring rows lies in 8 different groups of banks.
template <int P>
__device__ constexpr std::uint32_t swizzle(std::uint32_t row) {
  return P == 32 ? (row >> 1) & 3 : row & 7;
}
template <int P>
__device__ constexpr std::uint32_t chunk_offset(std::uint32_t row, std::uint32_t chunk) {
  return row * (P * 2) + ((chunk ^ swizzle<P>(row)) << 4);
}

// What a lane passes to ldmatrix() for the 16 x 16 block at (16 block_row, 16 block_column) of a tile:
// matrices go down first, then right. That is the order of an A fragment, and, transposed, of two B fragments
// side by side; read as B of A B^T, matrices 0 and 2 are one fragment, 1 and 3 the next.
template <int P>
__device__ __forceinline__ std::uint32_t lane_address(std::uint32_t tile, int block_row, int block_column) {
  const std::uint32_t lane = threadIdx.x & 31, row = lane & 15, chunk = lane >> 4;
  const std::uint32_t in_block = row * (P * 2) + (((chunk ^ swizzle<P>(row)) << 4) ^ (block_column * 32));
  return tile + block_row * (16 * P * 2) + in_block;
}

// ---- tiles of a warp ----
}
