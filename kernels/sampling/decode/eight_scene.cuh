// SPDX-License-Identifier: MIT
// DecodeBlocks by clusters for up to eight sequences (sm_90a): what the warps of a thread block
// share. Numbers that an MMA reads as its second factor lie in pairs of inner elements, by sequence:
// a word of T and a word of what the rounding to T has left.
#pragma once

#include "kernels/sampling/decode/cluster_scene.cuh"
#include "kernels/sampling/decode/eight_plan.h"

namespace weft::decode_cluster {
inline constexpr int kEightExchangers = 4;  // warps
// Slots of keys: each sequence has a ring of its own.
inline constexpr int kSlotsOfText = 4, kEightSlots = kTexts * kSlotsOfText;
inline constexpr int kMomentParts = kRanks * kEightExchangers;

// Shared memory before the stages. Buffers that other ranks write come first.
template <int kWidth>
struct alignas(128) EightShared {
  using P = EightPacking<kWidth>;
  uint2 x[kWidth / 2][kTexts];  // the residual stream times the weights of the next norm
  float moments[kTexts][2][kMomentParts];  // sums of the stream, and of its squares
  float qkv[kTexts][kQkv];
  union {  // at different times
    float attended[kTexts][kRanks][kHeadSize];
    float down[kRanks][P::kOwned][kTexts];
  };
  Softmax of_rank[kTexts][kRanks];
  float partial[kWarps][kHidden][kTexts];  // sums over a warp's share of the stream
  uint2 attended_pairs[kHeadSize / 2][kTexts], hidden[kHidden / 2][kTexts];
  float2 norms[kTexts];               // mean, 1 / deviation
  float turns[kTexts][kHeadSize];     // cos and sin of each pair at the position
  Settings settings;
  List lists[kMostLayouts];
  uint32_t own[kEightSlots];  // bits: which key of a slot is the new one
  uint64_t x_here[2], moments_here[2], qkv_here, attended_here, down_here;
  uint64_t attention_full[2], attention_empty[2], mlp_full[2], mlp_empty[2], keys_full[kEightSlots],
      keys_empty[kEightSlots];

  static constexpr int kXBytes = sizeof(x), kMomentsBytes = sizeof(moments),
                       kDownBytes = sizeof(down), kQkvBytes = kQkv * 4,  // of a sequence
                       kAttendedBytes = kRanks * (kHeadSize * 4 + 8);

  __device__ __forceinline__ void init_barriers(int rows) {
    init_streams(*this, kWarps + kEightExchangers, 1);
    for (int phase = 0; phase < 2; ++phase) {
      init_receiving(x_here[phase], kXBytes);
      init_receiving(moments_here[phase], kMomentsBytes);
    }
    init_receiving(qkv_here, rows * kQkvBytes);
    init_receiving(attended_here, rows * kAttendedBytes);
    init_receiving(down_here, kDownBytes);
  }
};

template <class T, int kWidth>
struct EightScene {
  using P = EightPacking<kWidth>;
  using Element = T;
  using SharedType = EightShared<kWidth>;
  static constexpr int kSlotBytes = slot_bytes(kHalfKeys),
                       kThreads = (kFirstExchange + kEightExchangers) * kWarp;

  const Arguments<T>& a;
  SharedType& s;
  uint32_t* exchange = nullptr;  // this launch's set
  int warp, lane, head, rank;
  uint32_t attention, mlp, keys;  // addresses of the first stages

  __device__ __forceinline__ EightScene(const Arguments<T>& arguments, unsigned char* memory)
      : a(arguments),
        s(*reinterpret_cast<SharedType*>(memory)),
        warp(static_cast<int>(threadIdx.x) / kWarp),
        lane(static_cast<int>(threadIdx.x) % kWarp),
        head(static_cast<int>(blockIdx.x) / kRanks),
        rank(static_cast<int>(blockIdx.x) % kRanks),
        attention(device::shared_address(memory) + sizeof(SharedType)),
        mlp(attention + a.stages.attention * P::kAttentionBytes),
        keys(mlp + a.stages.mlp * P::kMlpBytes) {}

  // Once the launch before has ended.
  __device__ __forceinline__ void choose_exchange() {
    exchange = a.exchange + (*a.launches & 1) * a.set_words;
  }

  // The partial sums that head `of` publishes of the rank's column `column`.
  __device__ __forceinline__ uint32_t* words(int exchange_number, int of, int column) const {
    return exchange + exchange_number * P::kExchangeWords +
           (of * kWidth + rank * P::kOwned + column) * kTextPairs;
  }

  __device__ __forceinline__ static const float* constants(uint32_t stage) {
    return static_cast<const float*>(__cvta_shared_to_generic(stage));
  }
};

// Stores 16 bytes to an address that mapa() gave. The mbarrier, of the same thread block, counts
// them.
__device__ __forceinline__ void st_async_16(uint32_t to, const uint2 (&x)[2], uint32_t mbarrier) {
  WEFT_SM90_ASM(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(to),
      "r"(x[0].x), "r"(x[0].y), "r"(x[1].x), "r"(x[1].y), "r"(mbarrier)
      : "memory");
}

// A word of T, and a word of what the rounding has left.
template <class T>
__device__ __forceinline__ uint2 split(float low, float high) {
  const uint32_t word = device::pack<T>(low, high);
  const float2 rounded = device::unpack<T>(word);
  return {word, device::pack<T>(low - rounded.x, high - rounded.y)};
}
}  // namespace weft::decode_cluster
