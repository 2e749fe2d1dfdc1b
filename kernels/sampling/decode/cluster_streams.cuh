// SPDX-License-Identifier: MIT
// The warps that bring weights and keys, each a stream of its own that runs ahead of what computes
// and keeps its pace.
#pragma once

#include "kernels/sampling/decode/cluster_scene.cuh"

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

// By one thread: one part of all layers' weights, in kPieces copies each.
template <int kPieces, int kBytes, class AnyScene>
__device__ __forceinline__ void stream_weights(const AnyScene& scene, int part_at, Stage stage,
                                               uint32_t first_stage, int cycles,
                                               const uint64_t (&full)[2],
                                               const uint64_t (&empty)[2]) {
  using P = typename AnyScene::P;
  constexpr int kPiece = kBytes / kPieces;
  static_assert(kPiece % 16 == 0 && kPiece * kPieces == kBytes);
  PacedStream pace(cycles);
  const unsigned char* from =
      scene.a.weights + int64_t{scene.head * kRanks + scene.rank} * P::kBytes + part_at;
  for (int layer = 0; layer < scene.a.layers; ++layer, stage.advance()) {
    const uint32_t barrier = address(full[stage.at]), to = first_stage + stage.at * kBytes;
    wait(empty[stage.at], stage.parity ^ 1);
    device::mbarrier_arrive_expect_tx(barrier, kBytes);
#pragma unroll 1
    for (int at = 0; at < kBytes; at += kPiece) {
      if (layer > 0) pace.wait();  // everyone waits for the first
      device::bulk_load(to + at, from + at, kPiece, barrier);
    }
    from += int64_t{P::kBlocks} * P::kBytes;
  }
}

// By one warp: the listed keys and values of this rank, steps of kStepKeys rows of the cache.
template <class T, int kWidth, int kRows>
class KeyStream {
 public:
  __device__ __forceinline__ explicit KeyStream(const Scene<T, kWidth, kRows>& scene)
      : c_(scene),
        stage_{scene.a.stages.keys},
        pace_(scene.a.pace.keys) {}

  // The next lists are on their way while the rows of these are.
  __device__ __forceinline__ void run() {
    Cursor next;
    settle(next);
    Keys keys = load(next);
    while (next.layer < c_.a.layers) {
      const Cursor now = next;
      const Keys of_now = keys;
      next.first += kStepKeys * kStepsAtOnce;
      settle(next);
      keys = load(next);
#pragma unroll
      for (int i = 0; i < kStepsAtOnce; ++i) bring(now, of_now.row[i], now.first + i * kStepKeys);
    }
  }

 private:
  // kStepsAtOnce steps of a layer and sequence, from a place of the list on.
  struct Cursor {
    int layer = 0, row = 0, first = 0;
  };

  // This lane's of each step.
  struct Keys {
    int row[kStepsAtOnce];
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
    for (int i = 0; i < kStepsAtOnce; ++i) {
      keys.row[i] = -2;  // no row, and no neighbour of one
      const int place = at.first + i * kStepKeys + c_.lane;
      if (at.layer < c_.a.layers && place < list(at.layer).count)
        keys.row[i] =
            __ldg(c_.a.layouts[c_.a.of_layer[at.layer].layout].keys + list(at.layer).begin + place);
    }
    return keys;
  }

  // One step. Rows that follow each other in the cache come in one copy.
  __device__ __forceinline__ void bring(const Cursor& at, int key, int first) {
    const List& of = list(at.layer);
    const int count = min(kStepKeys, of.count - first), lane = c_.lane;
    if (count <= 0) return;
    const int before = __shfl_up_sync(kFullWarp, key, 1);
    const bool begins = lane < count && (lane == 0 || key != before + 1);
    const unsigned runs = __ballot_sync(kFullWarp, begins),
                   own = __ballot_sync(kFullWarp, key == of.own),
                   later = lane == kWarp - 1 ? 0 : runs >> (lane + 1);
    const int bytes = (later ? __ffs(static_cast<int>(later)) : count - lane) * kRowBytes;
    const uint32_t barrier = address(c_.s.keys_full[stage_.at]),
                   to = c_.keys + stage_.at * kSlotBytes + lane * kRowBytes;
    wait(c_.s.keys_empty[stage_.at], stage_.parity ^ 1);
    pace_.wait();
    __syncwarp();
    if (lane == 0) {
      c_.s.own[stage_.at] = own;
      device::mbarrier_arrive_expect_tx(barrier, count * kRowBytes * 2);
    }
    __syncwarp();
    if (begins) {
      const Layer<T>& layer = c_.a.of_layer[at.layer];
      const int64_t from = (int64_t{at.row} * layer.cache_rows + of.first_row + key) * kHeadSize;
      device::bulk_load(to, layer.k + from, bytes, barrier);
      device::bulk_load(to + kSlotBytes / 2, layer.v + from, bytes, barrier);
    }
    __syncwarp();
    stage_.advance();
  }

  const Scene<T, kWidth, kRows>& c_;
  Stage stage_;
  PacedStream pace_;
};
}  // namespace weft::decode_cluster
