// SPDX-License-Identifier: MIT
// The warps that bring weights and keys, each a stream of its own that runs ahead of what computes
// and keeps its pace.
#pragma once

#include "kernels/sampling/decode/cluster_context.cuh"

namespace weft::decode_cluster {
class PacedStream {
 public:
  __device__ __forceinline__ explicit PacedStream(int cycles)
      : cycles_(cycles) {}

  __device__ __forceinline__ void wait() {
    long long now;
    do now = clock64();
    while (now < next_);
    next_ = now + cycles_;
  }

 private:
  int cycles_;
  long long next_ = 0;
};

// One part of the weights of all layers, by one thread, in kPieces copies a layer.
template <int kPieces, int kBytes, class AnyContext>
class WeightStream {
  static constexpr int kPiece = kBytes / kPieces;
  static_assert(kPiece % 16 == 0 && kPiece * kPieces == kBytes);

 public:
  __device__ __forceinline__ WeightStream(const AnyContext& context, int part_at, Stage stage,
                                          uint32_t first_stage, int cycles,
                                          const uint64_t (&full)[2], const uint64_t (&empty)[2])
      : from_(context.a.weights +
              int64_t{context.head * kRanks + context.rank} * AnyContext::P::kBytes + part_at),
        stage_(stage),
        first_stage_(first_stage),
        pace_(cycles),
        full_(full),
        empty_(empty) {}

  // The first layer's, for which everyone waits.
  __device__ __forceinline__ void begin() { load<false>(); }

  __device__ __forceinline__ void run(int layers) {
    for (int layer = 1; layer < layers; ++layer) load<true>();
  }

 private:
  template <bool kPaced>
  __device__ __forceinline__ void load() {
    const uint32_t barrier = address(full_[stage_.at]), to = first_stage_ + stage_.at * kBytes;
    wait(empty_[stage_.at], stage_.parity ^ 1);
    device::mbarrier_arrive_expect_tx(barrier, kBytes);
#pragma unroll 1
    for (int at = 0; at < kBytes; at += kPiece) {
      if constexpr (kPaced) pace_.wait();
      device::bulk_load(to + at, from_ + at, kPiece, barrier);
    }
    from_ += int64_t{AnyContext::P::kBlocks} * AnyContext::P::kBytes;
    stage_.advance();
  }

  const unsigned char* from_;
  Stage stage_;
  uint32_t first_stage_;
  PacedStream pace_;
  const uint64_t (&full_)[2];
  const uint64_t (&empty_)[2];
};

template <class AnyContext>
__device__ __forceinline__ auto attention_weights(const AnyContext& context) {
  return WeightStream<8, AnyContext::P::kAttentionBytes, AnyContext>(
      context, 0, {context.a.stages.attention}, context.attention, context.a.pace.attention,
      context.s.attention_full, context.s.attention_empty);
}

template <class AnyContext>
__device__ __forceinline__ auto mlp_weights(const AnyContext& context) {
  return WeightStream<16, AnyContext::P::kMlpBytes, AnyContext>(
      context, AnyContext::P::kAttentionBytes, {context.a.stages.mlp}, context.mlp,
      context.a.pace.mlp, context.s.mlp_full, context.s.mlp_empty);
}

// By a warp: `count` rows of the cache, keys and values, to slots of shared memory. Each lane has
// the number of one of at most kHalfKeys. Rows that follow each other come in one copy.
template <class T>
__device__ __forceinline__ void copy_rows(const T* k, const T* v, int key, int count, uint32_t to,
                                          int value_offset, uint32_t barrier) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            before = __shfl_up_sync(kFullWarp, key, 1);
  const bool begins = lane < count && (lane == 0 || key != before + 1);
  const unsigned runs = __ballot_sync(kFullWarp, begins),
                 later = lane == kWarp - 1 ? 0 : runs >> (lane + 1);
  if (begins) {
    const int bytes =
        (later ? __ffs(static_cast<int>(later)) : min(count, kHalfKeys) - lane) * kRowBytes;
    const int64_t from = int64_t{key} * kHeadSize;
    device::bulk_load(to + lane * kRowBytes, k + from, bytes, barrier);
    device::bulk_load(to + value_offset + lane * kRowBytes, v + from, bytes, barrier);
  }
  __syncwarp();
}

// By one warp: the listed keys and values of this rank, slots of kSlotKeys rows of the cache.
template <class T, int kWidth, int kRows>
class KeyStream {
  static constexpr int kSlotBytes = slot_bytes(kSlotKeys);

 public:
  __device__ __forceinline__ explicit KeyStream(const BlockContext<T, kWidth, kRows>& context)
      : c_(context),
        stage_{context.a.stages.keys},
        pace_(context.a.pace.keys) {}

  // The next list is on its way while the rows of this one are.
  __device__ __forceinline__ void run() {
    Cursor next;
    settle(next);
    Keys keys = load(next);
    while (next.layer < c_.a.layers) {
      const Cursor now = next;
      const Keys of_now = keys;
      next.first += kSlotKeys;
      settle(next);
      keys = load(next);
      bring(now, of_now);
    }
  }

 private:
  // A slot of a layer and sequence, from a place of the list on.
  struct Cursor {
    int layer = 0, row = 0, first = 0;
  };

  // This lane's of each half.
  struct Keys {
    int row[2];
  };

  __device__ __forceinline__ const List& list(int layer) const {
    return c_.s.lists[c_.a.of_layer[layer].layout];
  }

  // To the first place that there is, from this one on.
  __device__ __forceinline__ void settle(Cursor& at) const {
    while (at.layer < c_.a.layers && at.first >= list(at.layer).count) {
      at.first = 0;
      if (list(at.layer).count == 0 || ++at.row == c_.a.rows) at.row = 0, ++at.layer;
    }
  }

  __device__ __forceinline__ Keys load(const Cursor& at) const {
    Keys keys;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      keys.row[i] = -2;  // no row, and no neighbour of one
      const int place = at.first + i * kHalfKeys + c_.lane;
      if (at.layer < c_.a.layers && place < list(at.layer).count)
        keys.row[i] =
            __ldg(c_.a.layouts[c_.a.of_layer[at.layer].layout].keys + list(at.layer).begin + place);
    }
    return keys;
  }

  __device__ __forceinline__ void bring(const Cursor& at, const Keys& keys) {
    const List& of = list(at.layer);
    const int count = min(kSlotKeys, of.count - at.first);
    const uint2 own = {__ballot_sync(kFullWarp, keys.row[0] == of.own),
                       __ballot_sync(kFullWarp, keys.row[1] == of.own)};
    wait(c_.s.keys_empty[stage_.at], stage_.parity ^ 1);
    pace_.wait();
    __syncwarp();
    if (c_.lane == 0) {
      c_.s.own[stage_.at] = own;
      device::mbarrier_arrive_expect_tx(address(c_.s.keys_full[stage_.at]), count * kRowBytes * 2);
    }
    __syncwarp();
    const Layer<T>& layer = c_.a.of_layer[at.layer];
    const int64_t from = (int64_t{at.row} * layer.cache_rows + of.first_row) * kHeadSize;
    const uint32_t to = c_.keys + stage_.at * kSlotBytes,
                   barrier = address(c_.s.keys_full[stage_.at]);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      copy_rows(layer.k + from, layer.v + from, keys.row[half], count - half * kHalfKeys,
                to + half * kHalfKeys * kRowBytes, kSlotBytes / 2, barrier);
    stage_.advance();
  }

  const BlockContext<T, kWidth, kRows>& c_;
  Stage stage_;
  PacedStream pace_;
};
}  // namespace weft::decode_cluster
