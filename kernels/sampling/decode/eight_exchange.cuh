// SPDX-License-Identifier: MIT
// The warps that exchange, for up to eight sequences. They keep the residual stream, in f32: a lane
// one column of those that the rank owns, of four sequences. They add what the clusters publish and
// send the sum to the cluster's ranks.
#pragma once

#include "kernels/sampling/decode/cluster_attention.cuh"
#include "kernels/sampling/decode/eight_scene.cuh"

namespace weft::decode_cluster {
template <class T, int kWidth>
class EightExchange {
  using Scene = EightScene<T, kWidth>;
  using P = typename Scene::P;
  static constexpr int kOf = kTexts / 2;  // sequences of a lane

 public:
  __device__ __forceinline__ explicit EightExchange(const Scene& scene)
      : c_(scene),
        s_(scene.s),
        warp_(scene.warp - kFirstExchange),
        column_((warp_ * (kWarp / 2) + (scene.lane >> 1)) & (P::kOwned - 1)),
        text_((scene.lane & 1) * kOf),
        owns_(warp_ * (kWarp / 2) < P::kOwned) {}

  __device__ __forceinline__ void run() {
    Stage attention{c_.a.stages.attention}, mlp{c_.a.stages.mlp};
    const T* from = c_.a.x + c_.rank * P::kOwned + column_;
#pragma unroll
    for (int i = 0; i < kOf; ++i)
      if (owns_ && text_ + i < c_.a.rows) x_[i] = to_float(from[(text_ + i) * kWidth]);
    float weight = constants<typename P::OfAttention>(attention, true).weight;
    send(weight, 0);
#pragma unroll 1
    for (int layer = 0; layer < c_.a.layers; ++layer) {
      const OfPart of_mlp = constants<typename P::OfMlp>(mlp, false);
      if (c_.rank == 0) keep(layer);
      add_partial_sums(2 * layer);
      send(of_mlp.weight, 1);
      publish_down(layer, of_mlp.bias);
      const bool last = layer + 1 == c_.a.layers;
      if (!last) weight = constants<typename P::OfAttention>(attention, true).weight;
      add_partial_sums(2 * layer + 1);
      if (!last) send(weight, 0);
    }
    T* to = c_.a.y + c_.rank * P::kOwned + column_;
#pragma unroll
    for (int i = 0; i < kOf; ++i)
      if (c_.head == 0 && owns_ && text_ + i < c_.a.rows)
        to[(text_ + i) * kWidth] = from_float<T>(x_[i]);
    // Everyone has read the counter: all have published since.
    if (blockIdx.x == 0 && warp_ == 0 && c_.lane == 0) *c_.a.launches += 1;
  }

 private:
  struct OfPart {
    float bias, weight;
  };

  // By value: a choice of elements of an array would keep it out of registers.
  __device__ __forceinline__ static float either(bool first, float a, float b) {
    return first ? a : b;
  }

  // Of this lane's column, from the next stage of a part's weights.
  template <class Of>
  __device__ __forceinline__ OfPart constants(Stage& stage, bool attention) const {
    wait(attention ? s_.attention_full[stage.at] : s_.mlp_full[stage.at], stage.parity);
    const float* of =
        c_.constants(attention ? c_.attention + stage.at * P::kAttentionBytes
                               : c_.mlp + stage.at * P::kMlpBytes);
    const OfPart part = {of[Of::kBranchBiases + column_], of[Of::kNormWeights + column_]};
    device::mbarrier_arrive_warp(
        address(attention ? s_.attention_empty[stage.at] : s_.mlp_empty[stage.at]));
    stage.advance();
    return part;
  }

  // The stream to all ranks, times the weight of the norm that reads it, and its moments.
  __device__ __forceinline__ void send(float weight, int phase) const {
    // Two columns make a pair: the lane of the first sends two sequences, that of the second two.
    const bool second = (c_.lane & 2) != 0;
    uint2 pair[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float mine = either(second, x_[2 + i], x_[i]) * weight,
                  others =
                      __shfl_xor_sync(kFullWarp, either(second, x_[i], x_[2 + i]) * weight, 2);
      pair[i] = split<T>(either(second, others, mine), either(second, mine, others));
    }
    const uint32_t to =
                       address(s_.x[c_.rank * (P::kOwned / 2) + (column_ >> 1)]
                                   [text_ + (c_.lane & 2)]),
                   here = address(s_.x_here[phase]);
#pragma unroll
    for (int i = 0; i < kRanks; ++i) {
      const int peer = (i + c_.rank) % kRanks;
      if (owns_) st_async_16(device::mapa(to, peer), pair, device::mapa(here, peer));
    }
    send_moments(phase);
  }

  __device__ __forceinline__ void send_moments(int phase) const {
    float moments[2 * kOf];
#pragma unroll
    for (int i = 0; i < kOf; ++i) {
      moments[2 * i] = x_[i];
      moments[2 * i + 1] = x_[i] * x_[i];
    }
    int mask = kWarp / 2;
#pragma unroll
    for (int half = kOf; half > 0; half /= 2, mask /= 2) {
      const bool upper = c_.lane & mask;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const float given = upper ? moments[i] : moments[i + half],
                    kept = upper ? moments[i + half] : moments[i];
        moments[i] = kept + __shfl_xor_sync(kFullWarp, given, mask);
      }
    }
    const float sum = moments[0] + __shfl_xor_sync(kFullWarp, moments[0], 2);
    const int which = c_.lane / 4, text = text_ + which / 2,
              first_peer = c_.lane / 2 % 2 * (kRanks / 2);
    const uint32_t to = address(
                       s_.moments[text][which % 2][c_.rank * kEightExchangers + warp_]),
                   here = address(s_.moments_here[phase]);
#pragma unroll
    for (int i = 0; i < kRanks / 2; ++i)
      device::st_async(device::mapa(to, first_peer + i), sum, device::mapa(here, first_peer + i));
  }

  // The new keys and values to the cache: now these warps have time.
  __device__ __forceinline__ void keep(int layer) const {
    wait(s_.qkv_here, layer & 1);
    for (int row = warp_; row < c_.a.rows; row += kEightExchangers)
      NewRows<Scene>(c_).keep(layer, row);
  }

  // What the heads have published, in their order.
  __device__ __forceinline__ void add_partial_sums(int number) {
    uint32_t word[P::kHeads][2];
    const uint32_t* from = c_.words(number, 0, column_) + text_ / 2;
    const long long begin = clock64();
    for (bool all = false; !all;) {
      all = true;
#pragma unroll
      for (int i = 0; i < P::kHeads; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) word[i][j] = look(from + i * kWidth * kTextPairs + j);
#pragma unroll
      for (int i = 0; i < 2 * P::kHeads; ++i) all &= word[i / 2][i % 2] != kAbsent;
      if (!all && clock64() - begin > kPatience) __trap();
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float2 sum[P::kHeads];
#pragma unroll
      for (int i = 0; i < P::kHeads; ++i) sum[i] = device::unpack<T>(word[i][j]);
#pragma unroll
      for (int half = P::kHeads / 2; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < half; ++i)
          sum[i] = {sum[2 * i].x + sum[2 * i + 1].x, sum[2 * i].y + sum[2 * i + 1].y};
      if (owns_) x_[2 * j] += sum[0].x, x_[2 * j + 1] += sum[0].y;
    }
  }

  // Adds up what the ranks of this cluster have made of `down`.
  __device__ __forceinline__ void publish_down(int layer, float bias) const {
    receive(s_.down_here, layer & 1, s_.kDownBytes, warp_ == 0 && c_.lane == 0);
    float4 sum[kRanks];
#pragma unroll
    for (int i = 0; i < kRanks; ++i)
      sum[i] = *reinterpret_cast<const float4*>(&s_.down[i][column_][text_]);
#pragma unroll
    for (int half = kRanks / 2; half > 0; half /= 2)
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const float4 a = sum[2 * i], b = sum[2 * i + 1];
        sum[i] = {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
      }
    if (!owns_) return;
    uint32_t* to = c_.words(2 * layer + 1, c_.head, column_) + text_ / 2;
    publish(to, device::pack<T>(sum[0].x + bias, sum[0].y + bias));
    publish(to + 1, device::pack<T>(sum[0].z + bias, sum[0].w + bias));
  }

  const Scene& c_;
  typename Scene::SharedType& s_;
  int warp_, column_, text_;  // of these warps; of the rank; the lane's first sequence
  bool owns_;                 // else the lane repeats another one's
  float x_[kOf] = {};
};
}  // namespace weft::decode_cluster
