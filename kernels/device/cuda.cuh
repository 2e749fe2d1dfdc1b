// SPDX-License-Identifier: MIT
// What the CUDA forms share: checked runtime calls, conversions, 16-byte loads and stores, sums
// over a warp and a block in a fixed order, and dispatch over the element types of CUDA (f32, f16,
// bf16).
#pragma once

#include "kernels/queue.h"

#include <cstddef>
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace weft {
// Throws an Error with the statement, CUDA's own text and the place.
#define WEFT_CUDA_CHECK(statement)                                            \
  do {                                                                        \
    const cudaError_t weft_status = (statement);                              \
    if (weft_status != cudaSuccess)                                           \
      ::weft::cuda_failure(weft_status, #statement, __FILE_NAME__, __LINE__); \
  } while (0)

[[noreturn]] inline void cuda_failure(cudaError_t status, const char* statement, const char* file,
                                      int line) {
  fail("CUDA: ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")  [", statement,
       " at ", file, ":", line, "]");
}

template <>
inline constexpr DType dtype_of<__half> = DType::f16;
template <>
inline constexpr DType dtype_of<__nv_bfloat16> = DType::bf16;

// Calls f.operator()<T>() with the CUDA type of a floating dtype.
template <class F>
void dispatch_cuda(DType t, F&& f) {
  switch (t) {
    case DType::f32: return f.template operator()<float>();
    case DType::f16: return f.template operator()<__half>();
    case DType::bf16: return f.template operator()<__nv_bfloat16>();
    default: fail("CUDA kernels take f32, f16 or bf16, got ", name_of(t));
  }
}

inline constexpr int kWarp = 32;
inline constexpr unsigned kFullWarp = 0xffffffffu;

__device__ __forceinline__ float to_float(float x) { return x; }

__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }

__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (dtype_of<T> == DType::f16) return __float2half_rn(x);
  if constexpr (dtype_of<T> == DType::bf16) return __float2bfloat16_rn(x);
  if constexpr (dtype_of<T> == DType::f32) return x;
}

// e^x: to the last places for f32 results, the fast instruction where the result is rounded to 16
// bits.
template <class T>
__device__ __forceinline__ float exp_for(float x) {
  return dtype_of<T> == DType::f32 ? expf(x) : __expf(x);
}

// N consecutive elements, moved in pieces of 16 bytes (or all at once when there are fewer).
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T v[N];
};

// Whether packs may be used: null is fine.
inline bool aligned16(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

inline bool aligned16(const TensorView& v) { return aligned16(v.data); }

template <class... Views>
  requires(sizeof...(Views) > 1)
bool aligned16(const Views&... views) {
  return (aligned16(views) && ...);
}

// The same for every row of a matrix.
inline bool aligned_rows(const TensorView& v) {
  return aligned16(v.data) && v.cols() * size_of(v.dtype) % 16 == 0;
}

// out = the first min(N, count) elements at p, then zeros. `packed`: p is aligned for packs.
template <int N, class T>
__device__ __forceinline__ void load(float (&out)[N], const T* p, int64_t count, bool packed) {
  if (packed && count >= N) {
    const auto pack = *reinterpret_cast<const Pack<T, N>*>(p);
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = to_float(pack.v[i]);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = i < count ? to_float(p[i]) : 0.0f;
  }
}

// Stores, or adds, the first min(N, count) of `in` at p.
template <int N, class T>
__device__ __forceinline__ void store(T* p, const float (&in)[N], int64_t count, bool packed,
                                      bool accumulate = false) {
  float sum[N];
  if (accumulate) {
    load(sum, p, count, packed);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += in[i];
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = in[i];
  }
  if (packed && count >= N) {
    Pack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; ++i) pack.v[i] = from_float<T>(sum[i]);
    *reinterpret_cast<Pack<T, N>*>(p) = pack;
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i < count) p[i] = from_float<T>(sum[i]);
    }
  }
}

struct Sum {
  template <class W>
  __device__ W operator()(W a, W b) const {
    return a + b;
  }
};

struct Max {
  template <class W>
  __device__ W operator()(W a, W b) const {
    return max(a, b);
  }
};

// The values of kLanes neighbouring lanes joined by `join`: a butterfly, the same order on every
// lane.
template <int kLanes = kWarp, class W, class Join>
__device__ __forceinline__ W warp_reduce(W x, Join join) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2)
    x = join(x, __shfl_xor_sync(kFullWarp, x, offset));
  return x;
}

template <int kLanes = kWarp, class W>
__device__ __forceinline__ W warp_sum(W x) {
  return warp_reduce<kLanes>(x, Sum{});
}

// The same of a block of kThreads (a multiple of 32), on every thread: warps first, then warps in
// order.
template <int kThreads, class W, class Join>
__device__ __forceinline__ W block_reduce(W x, Join join) {
  __shared__ W of_warp[kThreads / kWarp];
  x = warp_reduce(x, join);
  __syncthreads();  // of_warp may still be read by an earlier call
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = of_warp[0];
#pragma unroll
  for (int w = 1; w < kThreads / kWarp; ++w) x = join(x, of_warp[w]);
  return x;
}

template <int kThreads, class W>
__device__ __forceinline__ W block_sum(W x) {
  return block_reduce<kThreads>(x, Sum{});
}

// 80, 90, ...: of the GPU at hand.
inline int compute_capability() {
  int device = 0, major = 0, minor = 0;
  WEFT_CUDA_CHECK(cudaGetDevice(&device));
  WEFT_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  WEFT_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return 10 * major + minor;
}

// Of the GPU at hand.
inline int multiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

// A stream that is being captured must not be waited for.
inline bool is_captured(const CudaQueue& q) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  WEFT_CUDA_CHECK(cudaStreamIsCapturing(q.stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

// Number of blocks for `work` items at `per_block` each, as a grid dimension.
inline unsigned blocks_for(int64_t work, int64_t per_block) {
  const int64_t blocks = (work + per_block - 1) / per_block;
  WEFT_CHECK(blocks <= 0x7fffffff, "a launch of ", blocks, " blocks is more than CUDA takes");
  return static_cast<unsigned>(blocks);
}

// `count` elements of the queue's workspace from `offset` bytes (a multiple of 256) on; moves
// `offset`.
template <class W>
W* take_workspace(const CudaQueue& q, std::size_t& offset, int64_t count, const char* kernel) {
  const std::size_t bytes = (static_cast<std::size_t>(count) * sizeof(W) + 255) / 256 * 256;
  WEFT_CHECK(offset + bytes <= q.workspace_bytes, kernel, ": needs ", offset + bytes,
             " bytes of workspace, the queue has ", q.workspace_bytes);
  W* p = reinterpret_cast<W*>(static_cast<char*>(q.workspace) + offset);
  offset += bytes;
  return p;
}
}  // namespace weft
