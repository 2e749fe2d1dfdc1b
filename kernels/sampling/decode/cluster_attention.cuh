// SPDX-License-Identifier: MIT
// Attention of one head by the ranks of a cluster. A rank has an eighth of the list of keys, a warp
// four keys of each half of a slot, eight lanes a key: each has eight features. Softmaxes over keys
// are merged by lanes, warps and ranks, always in the same order.
#pragma once

#include "kernels/sampling/decode/cluster_context.cuh"

namespace weft::decode_cluster {
// Softmax and sums of values, of kCount features.
template <int kCount>
struct Attended {
  Softmax softmax = {-INFINITY, 0};
  float y[kCount] = {};
};

__device__ __forceinline__ float finite_base(float top) { return top == -INFINITY ? 0.0f : top; }

// What eight warps or ranks found: each lane has two features.
__device__ __forceinline__ Attended<2> merged(const float (&values)[8][kHeadSize],
                                              const Softmax (&of)[8], int lane) {
  Softmax part[8];
  float2 y[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    part[i] = of[i];
    y[i] = *reinterpret_cast<const float2*>(&values[i][2 * lane]);
  }
  Attended<2> all;
#pragma unroll
  for (int i = 0; i < 8; ++i) all.softmax.top = fmaxf(all.softmax.top, part[i].top);
  const float base = finite_base(all.softmax.top);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float share = device::exp2_fast(part[i].top - base);
    all.softmax.sum = fmaf(share, part[i].sum, all.softmax.sum);
    all.y[0] = fmaf(share, y[i].x, all.y[0]);
    all.y[1] = fmaf(share, y[i].y, all.y[1]);
  }
  return all;
}

// p times a value, eight features.
template <class T>
__device__ __forceinline__ void add_value(Attended<8>& found, const uint4& v, float p) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
  found.softmax.sum += p;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = device::unpack<T>(words[i]);
    found.y[2 * i] = fmaf(p, two.x, found.y[2 * i]);
    found.y[2 * i + 1] = fmaf(p, two.y, found.y[2 * i + 1]);
  }
}

// The first of the two features that a lane has after joined().
__device__ __forceinline__ int first_joined(int lane) {
  return lane % 8 * 8 + (lane & 16 ? 4 : 0) + (lane & 8 ? 2 : 0);
}

// The sums of a warp's four keys joined; a lane keeps two of its eight features.
__device__ __forceinline__ Attended<2> joined(Attended<8>& found, int lane) {
  float top = found.softmax.top;
  top = fmaxf(top, __shfl_xor_sync(kFullWarp, top, 8));
  top = fmaxf(top, __shfl_xor_sync(kFullWarp, top, 16));
  const float share = device::exp2_fast(found.softmax.top - finite_base(top));
  float sum = found.softmax.sum * share;
  sum += __shfl_xor_sync(kFullWarp, sum, 8);
  sum += __shfl_xor_sync(kFullWarp, sum, 16);
  float(&y)[8] = found.y;
#pragma unroll
  for (float& v : y) v *= share;
  const bool upper = lane & 16, odd = lane & 8;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float given = upper ? y[i] : y[i + 4], kept = upper ? y[i + 4] : y[i];
    y[i] = kept + __shfl_xor_sync(kFullWarp, given, 16);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float given = odd ? y[i] : y[i + 2], kept = odd ? y[i + 2] : y[i];
    y[i] = kept + __shfl_xor_sync(kFullWarp, given, 8);
  }
  return {{top, sum}, {y[0], y[1]}};
}

// The new queries, keys and values: a lane has eight features.
template <class AnyContext>
class NewRows {
  using T = typename AnyContext::Element;

 public:
  __device__ __forceinline__ explicit NewRows(const AnyContext& context)
      : c_(context),
        piece_(context.lane % 8) {}

  // The query times the scale of scores.
  __device__ __forceinline__ void query(float (&q)[8], int row) const {
    read(q, row, 0);
    change(q, row);
#pragma unroll
    for (float& x : q) x *= c_.s.settings.scale;
  }

  // The new key and value to the cache, by one warp once they are there.
  __device__ __forceinline__ void keep(int layer, int row) const {
    const Layer<T>& of = c_.a.of_layer[layer];
    const List& list = c_.s.lists[of.layout];
    if (list.own < 0) return;
    const uint4 key = own_key(row), value = own_value(row);
    const int64_t at =
        (int64_t{row} * of.cache_rows + list.first_row + list.own) * kHeadSize + piece_ * 8;
    if (c_.lane < 8) *reinterpret_cast<uint4*>(of.k + at) = key;
    if (c_.lane >= 8 && c_.lane < 16) *reinterpret_cast<uint4*>(of.v + at) = value;
  }

 protected:
  // Eight features of the new query, key or value.
  __device__ __forceinline__ void read(float (&x)[8], int row, int which) const {
    const float4* from =
        reinterpret_cast<const float4*>(&c_.s.qkv[row][which * kHeadSize + piece_ * 8]);
    reinterpret_cast<float4*>(x)[0] = from[0];
    reinterpret_cast<float4*>(x)[1] = from[1];
  }

  // Normalised and rotated: QkForward.
  __device__ __forceinline__ void change(float (&x)[8], int row) const {
    if (!c_.s.settings.changes) return;
    float squares = 0, turns[8];
#pragma unroll
    for (const float v : x) squares = fmaf(v, v, squares);
    squares = warp_sum<8>(squares);
    const float scale =
        c_.s.settings.norm ? rsqrtf(squares * (1.0f / kHeadSize) + c_.s.settings.eps) : 1.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) turns[i] = c_.s.turns[row][piece_ * 8 + i];
    rotate_eight(x, scale, turns);
  }

  __device__ __forceinline__ static uint4 packed(const float (&x)[8]) {
    return pack_eight<T>(x).words[0];
  }

  __device__ __forceinline__ uint4 own_key(int row) const {
    float k[8];
    read(k, row, 1);
    change(k, row);
    return packed(k);
  }

  __device__ __forceinline__ uint4 own_value(int row) const {
    float v[8];
    read(v, row, 2);
    return packed(v);
  }

  const AnyContext& c_;
  int piece_;  // of a row, 16 bytes
};

template <class T, int kWidth, int kRows>
class Attention : NewRows<BlockContext<T, kWidth, kRows>> {
  using Rows = NewRows<BlockContext<T, kWidth, kRows>>;
  using Rows::piece_;
  static constexpr int kSlotBytes = slot_bytes(kSlotKeys);

 public:
  using Rows::keep;

  __device__ __forceinline__ explicit Attention(const BlockContext<T, kWidth, kRows>& context)
      : Rows(context),
        c_(context),
        s_(context.s),
        key_(context.warp * 4 + context.lane / 8),
        stage_{context.a.stages.keys} {}

  // This warp's keys of a row: softmax and sums to shared memory.
  __device__ __forceinline__ void run(int layer, int row) {
    const int count = s_.lists[c_.a.of_layer[layer].layout].count;
    float q[8];
    this->query(q, row);
    Attended<8> found;
#pragma unroll 1
    for (int first = 0; first < count; first += kSlotKeys) use(found, q, row, count - first);
    leave(found, row);
  }

 private:
  __device__ __forceinline__ uint4 piece_of(int slot, int half, int which) const {
    return device::ld_shared_16(c_.keys + slot * kSlotBytes + which * (kSlotBytes / 2) +
                                (half * kHalfKeys + key_) * kRowBytes + piece_ * 16);
  }

  // This lane's pieces of a slot's keys and values, the new ones in their places.
  struct Pieces {
    uint4 key[2], value[2];
  };

  __device__ __forceinline__ Pieces take(int row) {
    const int slot = stage_.at;
    wait(s_.keys_full[slot], stage_.parity);
    Pieces pieces;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      pieces.key[half] = piece_of(slot, half, 0);
      pieces.value[half] = piece_of(slot, half, 1);
    }
    const uint2 own = s_.own[slot];
    if (((own.x | own.y) >> (key_ & ~3) & 15) != 0) {
      const uint4 key = this->own_key(row), value = this->own_value(row);
      if (own.x >> key_ & 1) pieces.key[0] = key, pieces.value[0] = value;
      if (own.y >> key_ & 1) pieces.key[1] = key, pieces.value[1] = value;
    }
    device::mbarrier_arrive_warp(address(s_.keys_empty[slot]));
    stage_.advance();
    return pieces;
  }

  // A slot, without branches; `left`: keys from here on.
  __device__ __forceinline__ void use(Attended<8>& found, const float (&q)[8], int row, int left) {
    const Pieces pieces = take(row);
    float score[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float products = warp_sum<8>(dot<T>(pieces.key[half], q, 0));
      score[half] = half * kHalfKeys + key_ < left ? products : -INFINITY;
    }
    const float top = fmaxf(found.softmax.top, fmaxf(score[0], score[1])), base = finite_base(top),
                shrink = device::exp2_fast(found.softmax.top - base);
    found.softmax = {top, found.softmax.sum * shrink};
#pragma unroll
    for (float& y : found.y) y *= shrink;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // A row that was never written may hold NaN.
      const uint4 v = half * kHalfKeys + key_ < left ? pieces.value[half] : uint4{};
      add_value<T>(found, v, device::exp2_fast(score[half] - base));
    }
  }

  __device__ __forceinline__ void leave(Attended<8>& found, int row) const {
    const Attended<2> all = joined(found, c_.lane);
    *reinterpret_cast<float2*>(&s_.of_warps[row][c_.warp][first_joined(c_.lane)]) = {all.y[0],
                                                                                     all.y[1]};
    if (c_.lane == 0) s_.of_warp[row][c_.warp] = all.softmax;
  }

  const BlockContext<T, kWidth, kRows>& c_;
  Shared<kWidth, kRows>& s_;
  int key_;  // of a half of a slot
  Stage stage_;
};
}  // namespace weft::decode_cluster
