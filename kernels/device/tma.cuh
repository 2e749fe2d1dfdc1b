// SPDX-License-Identifier: MIT
// TMA, the tensor memory accelerator of sm_90a (PTX ISA, "cp.async.bulk.tensor"): tensor maps that
// describe a tensor in global memory, and copies of one box of it to or from shared memory by one
// thread.
#pragma once

#include "kernels/device/mbarrier.cuh"
#include "kernels/device/storage.cuh"
#include "kernels/dtype.h"

#include <array>
#include <cuda.h>
#include <cuda_runtime.h>

namespace weft::device {
// The driver's encoder of tensor maps, which programs do not link to; null: a driver older than
// TMA.
inline decltype(&cuTensorMapEncodeTiled) tensor_map_encoder() {
  static const auto encoder = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                               12000, cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) function = nullptr;
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  return encoder;
}

// Describes a tensor of f16 or bf16 and boxes of it, in the 128-byte swizzle, fastest axis first;
// what lies outside reads as zeros. strides: in elements, of the axes after the first. false: TMA
// does not take them.
template <int kRank>
bool encode_tensor_map(CUtensorMap& map, DType dtype, void* data,
                       const std::array<int64_t, kRank>& sizes,
                       const std::array<int64_t, kRank - 1>& strides,
                       const std::array<int, kRank>& box, CUtensorMapL2promotion lines) {
  const auto encode = tensor_map_encoder();
  if (!encode) return false;
  cuuint64_t extents[kRank], bytes[kRank - 1];
  cuuint32_t boxes[kRank], every[kRank];
  for (int i = 0; i < kRank; ++i) {
    extents[i] = static_cast<cuuint64_t>(sizes[i]);
    boxes[i] = static_cast<cuuint32_t>(box[i]);
    every[i] = 1;
  }
  for (int i = 0; i + 1 < kRank; ++i) {
    if (strides[i] <= 0 && sizes[i + 1] > 1) return false;
    // else never taken
    bytes[i] = static_cast<cuuint64_t>(sizes[i + 1] > 1 ? strides[i] * 2 : sizes[0] * 2);
  }
  return encode(&map,
                dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                    : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                kRank, data, extents, bytes, boxes, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, lines,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

__device__ __forceinline__ void prefetch(const CUtensorMap& map) {
  WEFT_SM90_ASM("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// ---- global to shared memory: the box that begins at x (fastest) ...; `full` counts its bytes

__device__ __forceinline__ void tma_load(SharedAddress to, const CUtensorMap& from, int x, int y,
                                         SharedAddress full) {
  WEFT_SM90_ASM(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, "
      "%3}], [%4];" ::"r"(uint32_t{to}),
      "l"(&from), "r"(x), "r"(y), "r"(uint32_t{full})
      : "memory");
}

// The same to this address in the thread blocks of the cluster whose bits are set in `ranks`; the
// bytes count at this barrier of each.
__device__ __forceinline__ void tma_load_multicast(SharedAddress to, const CUtensorMap& from, int x,
                                                   int y, SharedAddress full, int ranks) {
  WEFT_SM90_ASM(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::"
      "cluster "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(uint32_t{to}),
      "l"(&from), "r"(x), "r"(y), "r"(uint32_t{full}), "h"(static_cast<uint16_t>(ranks))
      : "memory");
}

__device__ __forceinline__ void tma_load(SharedAddress to, const CUtensorMap& from, int x, int y,
                                         int z, int w, SharedAddress full) {
  WEFT_SM90_ASM(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3, "
      "%4, %5}], [%6];" ::"r"(uint32_t{to}),
      "l"(&from), "r"(x), "r"(y), "r"(z), "r"(w), "r"(uint32_t{full})
      : "memory");
}

__device__ __forceinline__ void tma_load(SharedAddress to, const CUtensorMap& from, int x, int y,
                                         int z, int w, int v, SharedAddress full) {
  WEFT_SM90_ASM(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3, "
      "%4, %5, %6}], [%7];" ::"r"(uint32_t{to}),
      "l"(&from), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(uint32_t{full})
      : "memory");
}

// Contiguous bytes, without a tensor map: a multiple of 16, as both addresses.
__device__ __forceinline__ void bulk_load(SharedAddress to, const void* from, int bytes,
                                          SharedAddress full) {
  WEFT_SM90_ASM(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(uint32_t{to}),
      "l"(from), "r"(bytes), "r"(uint32_t{full})
      : "memory");
}

// To the L2 cache; address and bytes are multiples of 16.
__device__ __forceinline__ void bulk_prefetch_l2(const void* p, int64_t bytes) {
  WEFT_SM90_ASM("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(static_cast<int>(bytes))
                : "memory");
}

// ---- shared to global memory, in a group of tma_store_commit_group(); parts outside are left out

__device__ __forceinline__ void tma_store(const CUtensorMap& to, SharedAddress from, int x, int y) {
  WEFT_SM90_ASM(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&to),
      "r"(uint32_t{from}), "r"(x), "r"(y)
      : "memory");
}

__device__ __forceinline__ void tma_store(const CUtensorMap& to, SharedAddress from, int x, int y,
                                          int z, int w, int v) {
  WEFT_SM90_ASM(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], "
      "[%1];" ::"l"(&to),
      "r"(uint32_t{from}), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
      : "memory");
}

// The same, added to what is there.
__device__ __forceinline__ void tma_reduce_add(const CUtensorMap& to, SharedAddress from, int x,
                                               int y, int z, int w, int v) {
  WEFT_SM90_ASM(
      "cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4, %5, "
      "%6}], "
      "[%1];" ::"l"(&to),
      "r"(uint32_t{from}), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
      : "memory");
}

// Contiguous bytes, without a tensor map.
__device__ __forceinline__ void bulk_store(float* to, SharedAddress from, int bytes) {
  WEFT_SM90_ASM("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                "r"(uint32_t{from}), "r"(bytes)
                : "memory");
}

__device__ __forceinline__ void bulk_reduce_add(float* to, SharedAddress from, int bytes) {
  WEFT_SM90_ASM(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
      "r"(uint32_t{from}), "r"(bytes)
      : "memory");
}

// Orders global memory between TMA and ordinary instructions.
__device__ __forceinline__ void fence_proxy_async_global() {
  WEFT_SM90_ASM("fence.proxy.async.global;" ::: "memory");
}

__device__ __forceinline__ void tma_store_commit_group() {
  WEFT_SM90_ASM("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all but the last kPending groups of this thread have read shared memory.
template <int kPending>
__device__ __forceinline__ void tma_store_wait_group_read() {
  WEFT_SM90_ASM("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Waits until the stores of all groups of this thread are in global memory.
__device__ __forceinline__ void tma_store_wait_all() {
  WEFT_SM90_ASM("cp.async.bulk.wait_group 0;" ::: "memory");
}
}  // namespace weft::device
