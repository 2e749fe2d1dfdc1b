// SPDX-License-Identifier: MIT
// What every CUDA form of attention reads of a TileMap and of its tensors.
#pragma once

#include "kernels/attention/attention.h"

namespace weft::device {}

namespace weft::attention {
using namespace device;

// A mask index is -1 where every pair of a tile is attended, else the place of its words in
// TileMap::masks. kSkip: only another owner has a pair there. kEnd: no more, as mask index and as
// tile number. Kernels over bands have the distance of a key tile in its place.
inline constexpr int kEnd = 0x7fffffff;

// Rows of a (B, T, H, D) tensor of one (batch, head).
struct Rows {
  const char* base;
  uint32_t stride;  // bytes from one position to the next
  uint32_t chunks;  // 16-byte chunks of 8 elements in a row

  __device__ static Rows of(const HeadsView& x, int64_t b, int64_t h) {
    return {static_cast<const char*>(x.data) + (b * x.batch_stride + h * x.head_stride) * 2,
            static_cast<uint32_t>(x.time_stride * 2), static_cast<uint32_t>(x.size / 8)};
  }

  __device__ const char* at(int position, uint32_t chunk) const {
    return base + static_cast<uint64_t>(static_cast<uint32_t>(max(position, 0))) * stride +
           chunk * 16;
  }
};

// One direction of a TileMap: the stationary side, whose tiles a block owns, and the streamed side.
struct Direction {
  const int32_t *start, *tile, *mask, *turn, *schedule, *own_order, *other_order;
  const uint64_t* masks;
  int own_tiles;

  __device__ static Direction query_stationary(const TileMap& m) {
    return {m.row_start,   m.row_tile,  m.row_mask, nullptr,      m.row_schedule,
            m.query_order, m.key_order, m.masks,    m.query_tiles};
  }

  __device__ static Direction key_stationary(const TileMap& m) {
    return {m.col_start, m.col_tile,    m.col_mask,         m.col_turn, m.col_schedule,
            m.key_order, m.query_order, m.masks_transposed, m.key_tiles};
  }
};

// Thread blocks are numbered (rank, batch, head), head fastest; rank 0 has the longest lists.
struct BlockIndex {
  int b, h, rank;

  __device__ explicit BlockIndex(const HeadsView& x) {
    const unsigned heads = static_cast<unsigned>(x.heads),
                   pairs = static_cast<unsigned>(x.batch) * heads;
    const unsigned pair = blockIdx.x % pairs;
    rank = static_cast<int>(blockIdx.x / pairs);
    b = static_cast<int>(pair / heads);
    h = static_cast<int>(pair % heads);
  }
};

// Row `position` of a (B, T, H, D) tensor of a head.
template <class T>
__device__ __forceinline__ T* head_row(const HeadsView& x, const BlockIndex& at, int position) {
  return static_cast<T*>(x.data) + at.b * x.batch_stride + position * x.time_stride +
         at.h * x.head_stride;
}

// lse or delta of a head.
__device__ inline float* scalars_of(const TensorView& x, const BlockIndex& at) {
  return static_cast<float*>(x.data) + (at.b * x.shape[1] + at.h) * x.shape[2];
}

// Of the row in a slot.
__device__ inline float scalar(const TensorView& x, const BlockIndex& at, int position) {
  return position < 0 ? 0.0f : scalars_of(x, at)[position];
}
}  // namespace weft::attention
