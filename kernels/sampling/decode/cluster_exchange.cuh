// SPDX-License-Identifier: MIT
// The warps that exchange. They keep the residual stream, in f32: a lane two columns of those that
// the rank owns, of every fourth row. They add what the clusters publish and send the sum to the
// cluster's ranks.
#pragma once

#include "kernels/sampling/decode/cluster_attention.cuh"

namespace weft::decode_cluster {
template <class T, int kWidth, int kRows>
class Exchange {
  using P = Packing<kWidth>;

 public:
  __device__ __forceinline__ explicit Exchange(const BlockContext<T, kWidth, kRows>& context)
      : c_(context),
        s_(context.s),
        first_(context.warp - kFirstExchange),
        at_(context.lane % P::kWords),
        owns_(context.lane < P::kWords) {}

  __device__ __forceinline__ void run() {
    Stage attention{c_.a.stages.attention}, mlp{c_.a.stages.mlp};
    for_rows([&](float2& x, int row) {
      const uint32_t word = reinterpret_cast<const uint32_t*>(c_.a.x)[row * kWidth / 2 + column()];
      x = owns_ ? device::unpack<T>(word) : float2{0, 0};
    });
    float2 weight = constants<typename P::OfAttention>(attention, true).weight;
    for_rows([&](const float2& x, int row) { send(x, weight, row, 0); });
    for (int layer = 0; layer < c_.a.layers; ++layer) {
      const OfPart of_mlp = constants<typename P::OfMlp>(mlp, false);
      if (c_.rank == 0) for_rows([&](float2&, int row) { keep(row, layer); });
      for_rows([&](float2& x, int row) {
        add_partial_sums(x, row, 2 * layer);
        send(x, of_mlp.weight, row, 1);
      });
      for_rows([&](float2&, int row) { publish_down(row, layer, of_mlp.bias); });
      const bool last = layer + 1 == c_.a.layers;
      if (!last) weight = constants<typename P::OfAttention>(attention, true).weight;
      for_rows([&](float2& x, int row) {
        add_partial_sums(x, row, 2 * layer + 1);
        if (!last) send(x, weight, row, 0);
      });
    }
    for_rows([&](const float2& x, int row) {
      if (c_.head == 0 && owns_)
        reinterpret_cast<uint32_t*>(c_.a.y)[row * kWidth / 2 + column()] =
            device::pack<T>(x.x, x.y);
    });
    // Everyone has read the counter: all have published since.
    if (blockIdx.x == 0 && first_ == 0 && c_.lane == 0) *c_.a.launches += 1;
  }

 private:
  struct OfPart {
    float2 bias, weight;
  };

  template <class OfRow>
  __device__ __forceinline__ void for_rows(const OfRow& of_row) {
    if constexpr (kRows == 1) {
      of_row(x_, 0);
    } else {
#pragma unroll 1
      for (int row = first_; row < c_.a.rows; row += exchange_warps<kRows>())
        of_row(s_.stream[row][c_.lane], row);
    }
  }

  // The pair of columns of the stream.
  __device__ __forceinline__ int column() const { return c_.rank * P::kWords + at_; }

  // Of this lane's columns, from the next stage of a part's weights.
  template <class Of>
  __device__ __forceinline__ OfPart constants(Stage& stage, bool attention) const {
    wait(attention ? s_.attention_full[stage.at] : s_.mlp_full[stage.at], stage.parity);
    const uint32_t first =
        attention ? c_.attention + stage.at * P::kAttentionBytes : c_.mlp + stage.at * P::kMlpBytes;
    const float* of = c_.constants(first);
    const OfPart part = {*reinterpret_cast<const float2*>(of + Of::kBranchBiases + 2 * at_),
                         *reinterpret_cast<const float2*>(of + Of::kNormWeights + 2 * at_)};
    device::mbarrier_arrive_warp(
        address(attention ? s_.attention_empty[stage.at] : s_.mlp_empty[stage.at]));
    stage.advance();
    return part;
  }

  // The row of the stream to all ranks, times the weight of the norm that reads it, and its
  // moments.
  __device__ __forceinline__ void send(const float2& x, const float2& weight, int row,
                                       int phase) const {
    const uint32_t to = address(s_.x[row][2 * column()]), here = address(s_.x_here[phase][row]);
#pragma unroll
    for (int i = 0; i < kRanks; ++i) {
      const int peer = (i + c_.rank) % kRanks;
      if (owns_)
        device::st_async(device::mapa(to, peer), x.x * weight.x, x.y * weight.y,
                         device::mapa(here, peer));
    }
    const float sum = warp_sum(x.x + x.y), squares = warp_sum(fmaf(x.x, x.x, x.y * x.y));
    if (c_.lane < kRanks)
      device::st_async(device::mapa(address(s_.moments[row][c_.rank]), c_.lane), sum, squares,
                       device::mapa(address(s_.moments_here[phase][row]), c_.lane));
  }

  // The new key and value to the cache: now these warps have time.
  __device__ __forceinline__ void keep(int row, int layer) const {
    wait(s_.qkv_here[row], layer & 1);
    Attention<T, kWidth, kRows>(c_).keep(layer, row);
  }

  // What the heads have published, in their order.
  __device__ __forceinline__ void add_partial_sums(float2& x, int row, int number) const {
    const uint32_t* from = c_.words(number, row) + at_;
    uint32_t word[P::kHeads];
    const long long begin = clock64();
    for (bool all = false; !all;) {
      all = true;
#pragma unroll
      for (int i = 0; i < P::kHeads; ++i) word[i] = look(from + i * (kWidth / 2));
#pragma unroll
      for (int i = 0; i < P::kHeads; ++i) all &= word[i] != kAbsent;
      if (!all && clock64() - begin > kPatience) __trap();
    }
    __syncwarp();
    float2 sum[P::kHeads];
#pragma unroll
    for (int i = 0; i < P::kHeads; ++i) sum[i] = device::unpack<T>(word[i]);
#pragma unroll
    for (int half = P::kHeads / 2; half > 0; half /= 2)
#pragma unroll
      for (int i = 0; i < half; ++i)
        sum[i] = {sum[2 * i].x + sum[2 * i + 1].x, sum[2 * i].y + sum[2 * i + 1].y};
    if (owns_) x = {x.x + sum[0].x, x.y + sum[0].y};
  }

  // Adds up what the ranks of this cluster have made of `down`.
  __device__ __forceinline__ void publish_down(int row, int layer, const float2& bias) const {
    receive(s_.down_here[row], layer & 1, s_.kDownBytes, c_.lane == 0);
    float2 sum[kRanks];
#pragma unroll
    for (int i = 0; i < kRanks; ++i)
      sum[i] = *reinterpret_cast<const float2*>(&s_.down[row][i][2 * at_]);
#pragma unroll
    for (int half = kRanks / 2; half > 0; half /= 2)
#pragma unroll
      for (int i = 0; i < half; ++i)
        sum[i] = {sum[2 * i].x + sum[2 * i + 1].x, sum[2 * i].y + sum[2 * i + 1].y};
    if (owns_)
      publish(c_.words(2 * layer + 1, row) + c_.head * (kWidth / 2) + at_,
              device::pack<T>(sum[0].x + bias.x, sum[0].y + bias.y));
  }

  const BlockContext<T, kWidth, kRows>& c_;
  Shared<kWidth, kRows>& s_;
  int first_, at_;  // row; pair of the rank's columns
  bool owns_;       // else the lane repeats another one's
  float2 x_ = {};
};
}  // namespace weft::decode_cluster
