// SPDX-License-Identifier: MIT
// The eight warps that compute, for up to eight sequences. A product of weights and the stream is
// shared out by inner elements: each warp has an eighth, and the sums meet in shared memory. In
// attention a warp has a sequence. Norms are applied to sums, as in cluster_compute.cuh.
#pragma once

#include "kernels/sampling/decode/cluster_attention.cuh"
#include "kernels/sampling/decode/eight_scene.cuh"
#include "kernels/sampling/decode_linear.cuh"

namespace weft::decode_cluster {
// Attention of one sequence to the keys of this rank, by a warp: four keys at a time.
template <class T, int kWidth>
class EightAttention : NewRows<EightScene<T, kWidth>> {
  using Scene = EightScene<T, kWidth>;
  using Rows = NewRows<Scene>;
  using Rows::c_;
  using Rows::piece_;
  static constexpr int kAtOnce = 4;  // times four keys

 public:
  __device__ __forceinline__ explicit EightAttention(const Scene& scene)
      : Rows(scene),
        key_(scene.lane / 8),
        stage_{scene.a.stages.keys} {}

  __device__ __forceinline__ void run(int layer) {
    const int count = c_.s.lists[c_.a.of_layer[layer].layout].count, row = c_.warp;
    if (row >= c_.a.rows) return;
    float q[8];
    this->query(q, row);
    Attended<8> found;
#pragma unroll 1
    for (int first = 0; first < count; first += kHalfKeys) take(found, q, row, count - first);
    send(joined(found, c_.lane), row);
  }

 private:
  __device__ __forceinline__ void take(Attended<8>& found, const float (&q)[8], int row, int left) {
    const int slot = row * stage_.size + stage_.at;
    wait(c_.s.keys_full[slot], stage_.parity);
    const uint32_t own = c_.s.own[slot];
#pragma unroll 1
    for (int first = 0; first < min(kHalfKeys, left); first += 4 * kAtOnce)
      use(found, q, row, slot, first, left, own >> first);
    device::mbarrier_arrive_warp(address(c_.s.keys_empty[slot]));
    stage_.advance();
  }

  __device__ __forceinline__ uint4 piece_of(int slot, int key, int which) const {
    return device::ld_shared_16(c_.keys + slot * Scene::kSlotBytes +
                                which * (Scene::kSlotBytes / 2) + key * kRowBytes + piece_ * 16);
  }

  // Keys `first` and on of a slot, of which `left` are there; own: bits, which is the new one.
  __device__ __forceinline__ void use(Attended<8>& found, const float (&q)[8], int row, int slot,
                                      int first, int left, uint32_t own) const {
    uint4 k[kAtOnce], v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      k[i] = piece_of(slot, first + 4 * i + key_, 0);
      v[i] = piece_of(slot, first + 4 * i + key_, 1);
    }
    if ((own & 0xffff) != 0) {
      const uint4 key = this->own_key(row), value = this->own_value(row);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (own >> (4 * i + key_) & 1) k[i] = key, v[i] = value;
    }
    float score[kAtOnce], top = found.softmax.top;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float products = warp_sum<8>(dot<T>(k[i], q, 0));
      score[i] = first + 4 * i + key_ < left ? products : -INFINITY;
      top = fmaxf(top, score[i]);
    }
    const float base = finite_base(top), shrink = device::exp2_fast(found.softmax.top - base);
    found.softmax = {top, found.softmax.sum * shrink};
#pragma unroll
    for (float& y : found.y) y *= shrink;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)  // a row that was never written may hold NaN
      add_value<T>(found, first + 4 * i + key_ < left ? v[i] : uint4{},
                   device::exp2_fast(score[i] - base));
  }

  __device__ __forceinline__ void send(const Attended<2>& of_rank, int row) const {
    const uint32_t to = address(c_.s.attended[row][c_.rank][first_joined(c_.lane)]),
                   softmax_to = address(c_.s.of_rank[row][c_.rank]),
                   here = address(c_.s.attended_here);
#pragma unroll
    for (int i = 0; i < kRanks; ++i) {
      const int peer = (i + c_.rank) % kRanks;
      device::st_async(device::mapa(to, peer), of_rank.y[0], of_rank.y[1],
                       device::mapa(here, peer));
    }
    if (c_.lane < kRanks)
      device::st_async(device::mapa(softmax_to, c_.lane), of_rank.softmax.top, of_rank.softmax.sum,
                       device::mapa(here, c_.lane));
  }

  int key_;  // of four
  Stage stage_;
};

template <class T, int kWidth>
class EightCompute {
  using Scene = EightScene<T, kWidth>;
  using P = typename Scene::P;
  using Fragment = uint32_t[4];

 public:
  __device__ __forceinline__ explicit EightCompute(const Scene& scene)
      : c_(scene),
        s_(scene.s),
        attention_(scene),
        group_(scene.lane / 4),
        pair_(scene.lane % 4),
        attention_stage_{scene.a.stages.attention},
        mlp_stage_{scene.a.stages.mlp} {}

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int layer = 0; layer < c_.a.layers; ++layer) {
      project_to_qkv(layer);
      receive(s_.qkv_here, layer & 1, c_.a.rows * s_.kQkvBytes, is_first());
      attention_.run(layer);
      project(layer);
      mlp(layer);
    }
  }

 private:
  __device__ __forceinline__ bool is_first() const { return threadIdx.x == 0; }

  // The warps that compute have come this far.
  __device__ __forceinline__ static void sync() {
    asm volatile("bar.sync 1, %0;" ::"n"(kWarps * kWarp) : "memory");
  }

  // Fragment i of those at `from`.
  __device__ __forceinline__ void load(Fragment& w, uint32_t from, int i) const {
    reinterpret_cast<uint4&>(w) = device::ld_shared_16(from + (i * kWarp + c_.lane) * 16);
  }

  // sum + w x for a step of 16 inner elements; `x`: pairs of them.
  __device__ __forceinline__ void multiply(float (&sum)[4], const Fragment& w,
                                           const uint2 (*x)[kTexts], int step) const {
    const uint2 first = x[step * 8 + pair_][group_], second = x[step * 8 + 4 + pair_][group_];
    device::mma<T>(sum, w, first.x, second.x);
    device::mma<T>(sum, w, first.y, second.y);
  }

  __device__ __forceinline__ void leave(const float (&sum)[4], int first, bool whole) const {
    float(*const to)[kTexts] = s_.partial[c_.warp];
    *reinterpret_cast<float2*>(&to[first + group_][2 * pair_]) = {sum[0], sum[1]};
    if (whole) *reinterpret_cast<float2*>(&to[first + 8 + group_][2 * pair_]) = {sum[2], sum[3]};
  }

  // Warp w: the norm of sequence w. Before a sync().
  __device__ __forceinline__ void find_norm(int layer, int phase) const {
    receive(s_.moments_here[phase], layer & 1, s_.kMomentsBytes, is_first());
    const float sum = warp_sum(s_.moments[c_.warp][0][c_.lane]),
                squares = warp_sum(s_.moments[c_.warp][1][c_.lane]);
    constexpr float kShare = 1.0f / kWidth;
    const float mean = sum * kShare, variance = fmaxf(fmaf(-mean, mean, squares * kShare), 0.0f) +
                                                c_.a.of_layer[layer].eps[phase];
    if (c_.lane == 0) s_.norms[c_.warp] = {mean, rsqrtf(variance)};
  }

  // W norm(x) + bias, once all warps have left their sums.
  __device__ __forceinline__ float normed(int column, int text, float weight_sum,
                                          float bias) const {
    float y = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) y += s_.partial[i][column][text];
    const float2 norm = s_.norms[text];
    return fmaf(fmaf(-norm.x, weight_sum, y), norm.y, bias);
  }

  // This rank's share of q | k | v to all ranks.
  __device__ __forceinline__ void project_to_qkv(int layer) const {
    const uint32_t stage = c_.attention + attention_stage_.at * P::kAttentionBytes,
                   from = stage + P::kMatrices;
    wait(s_.attention_full[attention_stage_.at], attention_stage_.parity);
    Fragment w[P::kSteps], half[P::kSteps] = {};
#pragma unroll
    for (int i = 0; i < P::kSteps; ++i) {
      const int step = c_.warp * P::kSteps + i;
      load(w[i], from, step);
      const uint2 two = *static_cast<const uint2*>(
          __cvta_shared_to_generic(from + P::kHalfTile * 2 + (step * kWarp + c_.lane) * 8));
      half[i][0] = two.x, half[i][2] = two.y;
    }
    receive(s_.x_here[0], layer & 1, s_.kXBytes, is_first());
    float sum[2][4] = {};
#pragma unroll
    for (int i = 0; i < P::kSteps; ++i) {
      multiply(sum[0], w[i], s_.x, c_.warp * P::kSteps + i);
      multiply(sum[1], half[i], s_.x, c_.warp * P::kSteps + i);
    }
    leave(sum[0], 0, true);
    leave(sum[1], kTile, false);
    find_norm(layer, 0);
    sync();
    send_qkv(c_.constants(stage));
  }

  // A thread has two columns of a sequence, and sends them to four ranks.
  __device__ __forceinline__ void send_qkv(const float* constants) const {
    constexpr int kPairs = kQkvColumns / 2;
    const int thread = static_cast<int>(threadIdx.x), column = thread % kPairs * 2,
              text = thread / kPairs % kTexts, first_peer = thread / (kPairs * kTexts) * 4;
    if (first_peer >= kRanks || text >= c_.a.rows) return;
    float y[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      y[i] = normed(column + i, text, constants[P::OfAttention::kSums + column + i],
                    constants[P::OfAttention::kBiases + column + i]);
    const uint32_t to = address(s_.qkv[text][c_.rank * kQkvColumns + column]),
                   here = address(s_.qkv_here);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      device::st_async(device::mapa(to, first_peer + i), y[0], y[1],
                       device::mapa(here, first_peer + i));
  }

  // The head's partial sums of this rank's columns.
  __device__ __forceinline__ void project(int layer) {
    const uint32_t stage = c_.attention + attention_stage_.at * P::kAttentionBytes;
    const bool has_tile = c_.warp < P::kOwnedTiles;
    const int tile = has_tile ? c_.warp : 0, column = tile * kTile + group_;
    Fragment w[P::kHeadSteps];
#pragma unroll
    for (int i = 0; i < P::kHeadSteps; ++i) load(w[i], stage + P::kProj, tile * P::kHeadSteps + i);
    const float bias[2] = {c_.constants(stage)[P::OfAttention::kBranchBiases + column],
                           c_.constants(stage)[P::OfAttention::kBranchBiases + column + 8]};
    device::mbarrier_arrive_warp(address(s_.attention_empty[attention_stage_.at]));
    attention_stage_.advance();
    receive(s_.attended_here, layer & 1, c_.a.rows * s_.kAttendedBytes, is_first());
    uint2 pair = {};
    if (c_.warp < c_.a.rows) {
      const Attended<2> all = merged(s_.attended[c_.warp], s_.of_rank[c_.warp], c_.lane);
      const float share = all.softmax.sum == 0 ? 0.0f : __fdividef(1.0f, all.softmax.sum);
      pair = split<T>(all.y[0] * share, all.y[1] * share);
    }
    s_.attended_pairs[c_.lane][c_.warp] = pair;
    sync();
    if (!has_tile) return;
    float sum[4] = {};
#pragma unroll
    for (int i = 0; i < P::kHeadSteps; ++i) multiply(sum, w[i], s_.attended_pairs, i);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      publish(c_.words(2 * layer, c_.head, column + 8 * i) + pair_,
              device::pack<T>(sum[2 * i] + bias[i], sum[2 * i + 1] + bias[i]));
  }

  // The thread block's hidden units, and what they add to all columns, to the columns' owners.
  __device__ __forceinline__ void mlp(int layer) {
    const uint32_t stage = c_.mlp + mlp_stage_.at * P::kMlpBytes;
    wait(s_.mlp_full[mlp_stage_.at], mlp_stage_.parity);
    Fragment up[P::kSteps][P::kHiddenTiles], down[P::kOwnedTiles][P::kHiddenTiles];
#pragma unroll
    for (int i = 0; i < P::kSteps; ++i)
#pragma unroll
      for (int tile = 0; tile < P::kHiddenTiles; ++tile)
        load(up[i][tile], stage + P::kMatrices,
             (c_.warp * P::kSteps + i) * P::kHiddenTiles + tile);
#pragma unroll
    for (int tile = 0; tile < P::kOwnedTiles; ++tile)
#pragma unroll
      for (int i = 0; i < P::kHiddenTiles; ++i)
        load(down[tile][i], stage + P::kDown,
             (c_.warp * P::kOwnedTiles + tile) * P::kHiddenTiles + i);
    const int unit = static_cast<int>(threadIdx.x) / kTexts;
    const float weight_sum = c_.constants(stage)[P::OfMlp::kSums + unit],
                bias = c_.constants(stage)[P::OfMlp::kBiases + unit];
    device::mbarrier_arrive_warp(address(s_.mlp_empty[mlp_stage_.at]));
    mlp_stage_.advance();
    receive(s_.x_here[1], layer & 1, s_.kXBytes, is_first());
    float sum[P::kHiddenTiles][4] = {};
#pragma unroll
    for (int i = 0; i < P::kSteps; ++i)
#pragma unroll
      for (int tile = 0; tile < P::kHiddenTiles; ++tile)
        multiply(sum[tile], up[i][tile], s_.x, c_.warp * P::kSteps + i);
#pragma unroll
    for (int tile = 0; tile < P::kHiddenTiles; ++tile) leave(sum[tile], tile * kTile, true);
    find_norm(layer, 1);
    sync();
    activate(unit, weight_sum, bias);
    sync();
    send_down(down);
  }

  // A thread has a hidden unit of a sequence; neighbours join theirs.
  __device__ __forceinline__ void activate(int unit, float weight_sum, float bias) const {
    const int text = static_cast<int>(threadIdx.x) % kTexts;
    const float y = decode_linear::activation<T>(normed(unit, text, weight_sum, bias),
                                                 s_.settings.f),
                other = __shfl_xor_sync(kFullWarp, y, kTexts);
    if (unit % 2 == 0) s_.hidden[unit / 2][text] = split<T>(y, other);
  }

  __device__ __forceinline__ void send_down(
      const Fragment (&w)[P::kOwnedTiles][P::kHiddenTiles]) const {
    const uint32_t here = device::mapa(address(s_.down_here), c_.warp);
#pragma unroll
    for (int tile = 0; tile < P::kOwnedTiles; ++tile) {
      float sum[4] = {};
#pragma unroll
      for (int i = 0; i < P::kHiddenTiles; ++i) multiply(sum, w[tile][i], s_.hidden, i);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        device::st_async(
            device::mapa(
                address(s_.down[c_.rank][tile * kTile + group_ + 8 * i][2 * pair_]), c_.warp),
            sum[2 * i], sum[2 * i + 1], here);
    }
  }

  const Scene& c_;
  typename Scene::SharedType& s_;
  EightAttention<T, kWidth> attention_;
  int group_, pair_;  // of a lane in a fragment
  Stage attention_stage_, mlp_stage_;
};
}  // namespace weft::decode_cluster
