// SPDX-License-Identifier: MIT
// LinearActivation on Hopper (activation_hopper.cu): sizes, arguments, shared memory.
#pragma once

#include "kernels/layers/pointwise.h"
#include "kernels/linear/activation.h"
#include "kernels/linear/hopper.cuh"

namespace weft::linear_activation {
using namespace device;
using namespace linear_hopper;
using device::ldmatrix, device::ldmatrix_trans, device::pack, device::unpack;

inline constexpr int kConsumers = 2, kThreads = (1 + kConsumers) * kWarpgroup;
inline constexpr int kRows = 128;  // of a tile
// of the result: of a consumer, of a thread block
inline constexpr int kColumns = 64, kSlab = 2 * kColumns;
inline constexpr int kChunk = 64;                  // of the inner axis: a stage of the ring
inline constexpr int kStage = kRows * kChunk * 2;  // bytes
inline constexpr int kStages = 10, kSlots = 2;

// Tensor maps have tiles of 64 rows and 64 columns.
template <class T>
struct Arguments {
  CUtensorMap x, w;   // forward: x and w; backward: dy and w
  CUtensorMap h, dh;  // forward: h is written; backward: h is read
  CUtensorMap y;
  const T* bias;
  // backward: (lanes, cols), column sums over the rows of a lane of clusters; or null
  float* partial;
  bool with_h, with_y;  // whether they are written
  int cols;             // M
  // A cluster takes every `columns`-th group of slabs, and of it every `lanes`-th tile of rows.
  int groups, columns, tiles, lanes;
};

// The tiles of a cluster in order.
struct TileScheduler {
  int group, tile, lane;

  template <class T>
  __device__ __forceinline__ static TileScheduler of(const Arguments<T>& a, int cluster) {
    return {cluster % a.columns, cluster / a.columns, cluster / a.columns};
  }

  // The first column of a slab of the result.
  __device__ __forceinline__ int column(int rank) const {
    return (group * kCluster + rank) * kSlab;
  }

  template <class T>
  __device__ __forceinline__ bool more(const Arguments<T>& a) const {
    return group < a.groups;
  }

  // True when the next tile has other columns.
  template <class T>
  __device__ __forceinline__ bool advance(const Arguments<T>& a) {
    tile += a.lanes;
    if (tile < a.tiles) return false;
    tile = lane;
    group += a.columns;
    return true;
  }
};

// Shared memory of a thread block.
struct Memory {
  // 64 rows of a consumer's results. Backward: of h, which dh replaces.
  struct Slot {
    Panel y, h;
  };

  Panel stages[kStages][kRows / 64];
  Slot slots[kConsumers][kSlots];
  Pipeline<kStages> pipeline;
  // open: a slot may be written to, and backward it holds h; done: it was written.
  Barrier open[kConsumers][kSlots], done[kConsumers][kSlots];

  // By one thread of each thread block of the cluster.
  __device__ void init() {
    constexpr int kWarps = kWarpgroup / 32;
    pipeline.init(1, kCluster * kConsumers * kWarps);  // both blocks fill a stage with one half
    for (int consumer = 0; consumer < kConsumers; ++consumer) {
      for (int slot = 0; slot < kSlots; ++slot) {
        open[consumer][slot].init(1);
        done[consumer][slot].init(kWarps);
      }
    }
    fence_mbarrier_init();
    fence_proxy_async();
  }
};

__device__ __forceinline__ Activated<float> gelu(float v) {
  constexpr float slope = static_cast<float>(kGeluSlope);
  const float s = reciprocal(1.0f + device::exp2_fast(v * (-slope * device::kLog2E))), y = v * s;
  return {y, fmaf(slope, fmaf(-y, s, y), s)};
}
}  // namespace weft::linear_activation
