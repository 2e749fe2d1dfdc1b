// SPDX-License-Identifier: MIT
// What the Hopper kernels of this folder share: TMA tiles of a matrix, and a cluster of two thread
// blocks.
#pragma once

#include "kernels/device/cuda.cuh"
#include "kernels/device/named_barrier.cuh"
#include "kernels/device/pipeline.cuh"
#include "kernels/device/tma.cuh"
#include "kernels/device/wgmma.cuh"

namespace weft::linear_hopper {
using namespace device;  // the instructions

inline constexpr int kCluster = 2;  // thread blocks

// Loads a TMA tile to this address in every thread block of the cluster.
__device__ __forceinline__ void tma_load_multicast(SharedAddress to, const CUtensorMap& from,
                                                   int column, int row, SharedAddress full) {
  device::tma_load_multicast(to, from, column, row, full, (1 << kCluster) - 1);
}

// ---- host ----

// Describes a matrix in TMA tiles of `rows` rows and 64 columns; throws where TMA does not take it.
inline void describe(CUtensorMap& map, const TensorView& x, int rows, const char* kernel,
                     const char* name) {
  const bool described =
      encode_tensor_map<2>(map, x.dtype, x.data, {x.cols(), x.rows()}, {x.cols()}, {64, rows},
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
  WEFT_CHECK(described, kernel, ": TMA does not take ", name, " ", shape_text(x));
}
}  // namespace weft::linear_hopper
