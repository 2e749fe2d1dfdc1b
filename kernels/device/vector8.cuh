// SPDX-License-Identifier: MIT
// Eight consecutive elements of a row on CUDA, which a thread moves at a time; rows are aligned
// groups.
#pragma once

#include "kernels/device/cuda.cuh"
#include "kernels/device/mma.cuh"

namespace weft {
// As they lie in memory: while they are on their way they take no more registers than that.
template <class T>
struct Eight {
  uint4 words[sizeof(T) / 2];
};

// p: aligned to 16 bytes.
template <class T>
__device__ __forceinline__ Eight<T> load_eight(const T* p) {
  Eight<T> e;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T)) / 2; ++i)
    e.words[i] = reinterpret_cast<const uint4*>(p)[i];
  return e;
}

__device__ __forceinline__ void unpack(float (&out)[8], const Eight<float>& e) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    out[4 * i] = __uint_as_float(e.words[i].x), out[4 * i + 1] = __uint_as_float(e.words[i].y);
    out[4 * i + 2] = __uint_as_float(e.words[i].z), out[4 * i + 3] = __uint_as_float(e.words[i].w);
  }
}

template <class T>
__device__ __forceinline__ void unpack(float (&out)[8], const Eight<T>& e) {
  const uint32_t words[4] = {e.words[0].x, e.words[0].y, e.words[0].z, e.words[0].w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = device::unpack<T>(words[i]);
    out[2 * i] = two.x, out[2 * i + 1] = two.y;
  }
}

template <class T>
__device__ __forceinline__ Eight<T> pack_eight(const float (&v)[8]) {
  Eight<T> e;
  if constexpr (sizeof(T) == 4) {
    e.words[0] = {__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                  __float_as_uint(v[3])};
    e.words[1] = {__float_as_uint(v[4]), __float_as_uint(v[5]), __float_as_uint(v[6]),
                  __float_as_uint(v[7])};
  } else {
    e.words[0] = {device::pack<T>(v[0], v[1]), device::pack<T>(v[2], v[3]),
                  device::pack<T>(v[4], v[5]), device::pack<T>(v[6], v[7])};
  }
  return e;
}

template <class T>
__device__ __forceinline__ void store_eight(T* p, const Eight<T>& e) {
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T)) / 2; ++i)
    reinterpret_cast<uint4*>(p)[i] = e.words[i];
}
}  // namespace weft
