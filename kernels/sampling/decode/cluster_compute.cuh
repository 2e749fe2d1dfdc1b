// SPDX-License-Identifier: MIT
// The eight warps that compute. In each phase of a layer they hold their weights in registers when
// the numbers arrive, and take one row after the other. Norms are applied to sums: with g and b the
// weight and bias of the norm,
//   W norm(x) = rstd (W (g x) - mean W g) + W b
#pragma once

#include "kernels/sampling/decode/cluster_attention.cuh"
#include "kernels/sampling/decode_linear.cuh"

namespace weft::decode_cluster {
template <class T, int kWidth, int kRows>
class Compute {
  using P = Packing<kWidth>;

 public:
  __device__ __forceinline__ explicit Compute(const BlockContext<T, kWidth, kRows>& context)
      : c_(context),
        s_(context.s),
        attention_(context),
        attention_stage_{context.a.stages.attention},
        mlp_stage_{context.a.stages.mlp} {}

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int layer = 0; layer < c_.a.layers; ++layer) {
      project_to_qkv(layer);
      attend(layer);
      project(layer);
      mlp(layer);
    }
  }

 private:
  template <class OfRow>
  __device__ __forceinline__ void for_rows(const OfRow& of_row) const {
    if constexpr (kRows == 1)
      of_row(0);
    else
#pragma unroll 1
      for (int row = 0; row < c_.a.rows; ++row) of_row(row);
  }

  __device__ __forceinline__ bool is_first() const { return threadIdx.x == 0; }

  // The warps that compute have come this far.
  __device__ __forceinline__ static void sync() { device::named_barrier_sync<1, kWarps * kWarp>(); }

  // This lane's pieces of kColumns packed columns.
  template <int kColumns>
  __device__ __forceinline__ void load(uint4 (&w)[kColumns][P::kChunks], uint32_t from) const {
#pragma unroll
    for (int i = 0; i < kColumns; ++i)
#pragma unroll
      for (int chunk = 0; chunk < P::kChunks; ++chunk)
        w[i][chunk] =
            device::ld_shared_16(from + ((i * P::kChunks + chunk) * kWarp + c_.lane) * 16);
  }

  // W norm(x) + bias of up to four columns; a lane gets that of column lane / 8.
  template <int kColumns>
  __device__ __forceinline__ float normed_sums(const uint4 (&w)[kColumns][P::kChunks], int row,
                                               int phase, int layer, float weight_sum,
                                               float bias) const {
    receive(s_.x_here[phase][row], layer & 1, s_.kXBytes, is_first());
    float x[8 * P::kChunks], v[4] = {};
#pragma unroll
    for (int i = 0; i < 2 * P::kChunks; ++i)
      reinterpret_cast<float4*>(x)[i] =
          *reinterpret_cast<const float4*>(&s_.x[row][i * 128 + c_.lane * 4]);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      v[i] = dot<T>(w[i][0], x, 0);
      if constexpr (P::kChunks == 2) v[i] += dot<T>(w[i][1], x + 8, 0);
    }
    const float y = warp_sums(v, c_.lane);
    receive(s_.moments_here[phase][row], layer & 1, s_.kMomentsBytes, is_first());
    float sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < kRanks / 2; ++i) {
      const float4 two = reinterpret_cast<const float4*>(s_.moments[row])[i];
      sum += two.x + two.z;
      squares += two.y + two.w;
    }
    constexpr float kShare = 1.0f / kWidth;
    const float mean = sum * kShare, variance = fmaxf(fmaf(-mean, mean, squares * kShare), 0.0f) +
                                                c_.a.of_layer[layer].eps[phase];
    return fmaf(fmaf(-mean, weight_sum, y), rsqrtf(variance), bias);
  }

  // This rank's share of q | k | v to all ranks.
  __device__ __forceinline__ void project_to_qkv(int layer) {
    constexpr int kOfWarp = kQkvColumns / kWarps;
    const uint32_t stage = c_.attention + attention_stage_.at * P::kAttentionBytes;
    wait(s_.attention_full[attention_stage_.at], attention_stage_.parity);
    uint4 w[kOfWarp][P::kChunks];
    load(w, stage + P::kMatrices + c_.warp * kOfWarp * kWidth * 2);
    const int column = c_.warp * kOfWarp + min(c_.lane / 8, kOfWarp - 1);
    const float weight_sum = c_.constants(stage)[P::OfAttention::kSums + column],
                bias = c_.constants(stage)[P::OfAttention::kBiases + column];
    for_rows([&](int row) {
      const float y = normed_sums(w, row, 0, layer, weight_sum, bias);
      const int peer = c_.lane % 8;
      if (c_.lane < 8 * kOfWarp)
        device::st_async(device::mapa(address(s_.qkv[row][c_.rank * kQkvColumns + column]), peer),
                         y, device::mapa(address(s_.qkv_here[row]), peer));
    });
  }

  // Attention to this rank's keys; warp w sends what was found to rank w.
  __device__ __forceinline__ void attend(int layer) {
    for_rows([&](int row) {
      receive(s_.qkv_here[row], layer & 1, s_.kQkvBytes, is_first());
      attention_.run(layer, row);
    });
    sync();
    for_rows([&](int row) {
      const Attended<2> of_rank = merged(s_.of_warps[row], s_.of_warp[row], c_.lane);
      const uint32_t here = device::mapa(address(s_.attended_here[row]), c_.warp);
      device::st_async(device::mapa(address(s_.attended[row][c_.rank][2 * c_.lane]), c_.warp),
                       of_rank.y[0], of_rank.y[1], here);
      if (c_.lane == 0)
        device::st_async(device::mapa(address(s_.of_rank[row][c_.rank]), c_.warp),
                         of_rank.softmax.top, of_rank.softmax.sum, here);
    });
  }

  // The head's partial sums of this rank's columns.
  __device__ __forceinline__ void project(int layer) {
    constexpr int kOfWarp = 4 * P::kChunks, kLanes = kWarp / kOfWarp;
    const uint32_t stage = c_.attention + attention_stage_.at * P::kAttentionBytes;
    uint4 w[1][P::kChunks];
    load(w, stage + P::kProj + c_.warp * kOfWarp * kHeadSize * 2);
    const float bias =
        c_.constants(stage)[P::OfAttention::kBranchBiases + c_.warp * kOfWarp + c_.lane / kLanes];
    device::mbarrier_arrive_warp(address(s_.attention_empty[attention_stage_.at]));
    attention_stage_.advance();
    for_rows([&](int row) {
      receive(s_.attended_here[row], layer & 1, s_.kAttendedBytes, is_first());
      const Attended<2> all = merged(s_.attended[row], s_.of_rank[row], c_.lane);
      const float share = all.softmax.sum == 0 ? 0.0f : __fdividef(1.0f, all.softmax.sum);
      float v[kOfWarp];
#pragma unroll
      for (int chunk = 0; chunk < P::kChunks; ++chunk) {
        const uint32_t words[4] = {w[0][chunk].x, w[0][chunk].y, w[0][chunk].z, w[0][chunk].w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 two = device::unpack<T>(words[i]);
          v[4 * chunk + i] = fmaf(two.x, all.y[0], two.y * all.y[1]);
        }
      }
      const float y = fmaf(warp_sums(v, c_.lane), share, bias),
                  next = __shfl_xor_sync(kFullWarp, y, kLanes);
      if (c_.lane % (2 * kLanes) == 0)
        publish(c_.words(2 * layer, row) + c_.head * (kWidth / 2) + c_.warp * (kOfWarp / 2) +
                    c_.lane / (2 * kLanes),
                device::pack<T>(y, next));
    });
  }

  // The thread block's hidden units, and what they add to all columns, to the columns' owners.
  __device__ __forceinline__ void mlp(int layer) {
    constexpr int kOfWarp = kHidden / kWarps, kDownLoads = kHidden / 4;
    const uint32_t stage = c_.mlp + mlp_stage_.at * P::kMlpBytes;
    const int thread = static_cast<int>(threadIdx.x);
    wait(s_.mlp_full[mlp_stage_.at], mlp_stage_.parity);
    uint4 up[kOfWarp][P::kChunks], down[kDownLoads];
    load(up, stage + P::kMatrices + c_.warp * kOfWarp * kWidth * 2);
#pragma unroll
    for (int i = 0; i < kDownLoads; ++i)
      down[i] =
          device::ld_shared_16(stage + P::kDown + (i * (kWidth / 2) + thread % (kWidth / 2)) * 16);
    const int unit = c_.warp * kOfWarp + c_.lane / 8;
    const float weight_sum = c_.constants(stage)[P::OfMlp::kSums + unit],
                bias = c_.constants(stage)[P::OfMlp::kBiases + unit];
    device::mbarrier_arrive_warp(address(s_.mlp_empty[mlp_stage_.at]));
    mlp_stage_.advance();
    for_rows([&](int row) {
      const float y = normed_sums(up, row, 1, layer, weight_sum, bias);
      if (c_.lane % 8 == 0) s_.hidden[row][unit] = decode_linear::activation<T>(y, s_.settings.f);
    });
    sync();
    if (thread >= kWidth / 2) return;
    for_rows([&](int row) { send_down(down, row, thread); });
  }

  template <int kLoads>
  __device__ __forceinline__ void send_down(const uint4 (&w)[kLoads], int row, int pair) const {
    float2 sums[2] = {};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float4 h = reinterpret_cast<const float4*>(s_.hidden[row])[i];
      const uint32_t words[4] = {w[i].x, w[i].y, w[i].z, w[i].w};
      const float of[4] = {h.x, h.y, h.z, h.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 two = device::unpack<T>(words[j]);
        sums[j % 2].x = fmaf(two.x, of[j], sums[j % 2].x);
        sums[j % 2].y = fmaf(two.y, of[j], sums[j % 2].y);
      }
    }
    const int owner = pair / P::kWords, at = 2 * (pair % P::kWords);
    device::st_async(device::mapa(address(s_.down[row][c_.rank][at]), owner), sums[0].x + sums[1].x,
                     sums[0].y + sums[1].y, device::mapa(address(s_.down_here[row]), owner));
  }

  const BlockContext<T, kWidth, kRows>& c_;
  Shared<kWidth, kRows>& s_;
  Attention<T, kWidth, kRows> attention_;
  Stage attention_stage_, mlp_stage_;
};
}  // namespace weft::decode_cluster
