// SPDX-License-Identifier: MIT
// The warp that brings keys for up to eight sequences: rings of slots, one a sequence. All have the
// same list, of which a slot holds kHalfKeys.
#pragma once

#include "kernels/sampling/decode/cluster_streams.cuh"
#include "kernels/sampling/decode/eight_scene.cuh"

namespace weft::decode_cluster {
template <class T, int kWidth>
class EightKeyStream {
  using Scene = EightScene<T, kWidth>;

 public:
  __device__ __forceinline__ explicit EightKeyStream(const Scene& scene)
      : c_(scene),
        stage_{scene.a.stages.keys},
        pace_(scene.a.pace.keys) {}

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int layer = 0; layer < c_.a.layers; ++layer) {
      const int count = list(layer).count;
      int key = load(layer, 0);
#pragma unroll 1
      for (int first = 0; first < count; first += kHalfKeys) {
        const int now = key;
        key = load(layer, first + kHalfKeys);
#pragma unroll 1
        for (int row = 0; row < c_.a.rows; ++row)
          bring(layer, row, now, min(kHalfKeys, count - first));
        stage_.advance();
      }
    }
  }

 private:
  __device__ __forceinline__ const List& list(int layer) const {
    return c_.s.lists[c_.a.of_layer[layer].layout];
  }

  // This lane's of those from `first` on.
  __device__ __forceinline__ int load(int layer, int first) const {
    const int place = first + c_.lane;
    if (place >= list(layer).count) return -2;  // no row, and no neighbour of one
    return __ldg(c_.a.layouts[c_.a.of_layer[layer].layout].keys + list(layer).begin + place);
  }

  __device__ __forceinline__ void bring(int layer, int row, int key, int count) {
    const List& of = list(layer);
    const Layer<T>& in = c_.a.of_layer[layer];
    const int slot = row * stage_.size + stage_.at;
    const unsigned own = __ballot_sync(kFullWarp, key == of.own);
    const uint32_t barrier = address(c_.s.keys_full[slot]);
    wait(c_.s.keys_empty[slot], stage_.parity ^ 1);
    pace_.wait();
    __syncwarp();
    if (c_.lane == 0) {
      c_.s.own[slot] = own;
      device::mbarrier_arrive_expect_tx(barrier, count * kRowBytes * 2);
    }
    __syncwarp();
    const int64_t from = (int64_t{row} * in.cache_rows + of.first_row) * kHeadSize;
    copy_rows(in.k + from, in.v + from, key, count, c_.keys + slot * Scene::kSlotBytes,
              Scene::kSlotBytes / 2, barrier);
  }

  const Scene& c_;
  Stage stage_;
  PacedStream pace_;
};
}  // namespace weft::decode_cluster
