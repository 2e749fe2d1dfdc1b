// SPDX-License-Identifier: MIT
// DecodeBlocks by clusters (sm_90a): what the warps of a thread block share.
//
// A layer has two exchanges between clusters, after the projection and after `down`. Each cluster
// publishes partial sums of all columns, two elements a word of global memory; of each column the
// rank that owns it in each cluster adds them up in the order of the heads. A word is kAbsent until
// it is written, so it is its own flag, and relaxed loads and stores do:
//   - Every exchange has words of its own. Launches use two sets in turn, and each clears the other
//   set,
//     so nobody reads a word of an earlier launch. A counter in global memory says whose turn it
//     is.
//   - Payloads never equal kAbsent: that pair of NaNs is replaced by another.
//   - All thread blocks fit on the GPU at once and take the phases in one order. What the launch
//     shares the GPU with ends by itself.
// Inside a cluster numbers go from shared memory to shared memory, and an mbarrier counts their
// bytes. Buffers there are written again only a phase later, behind a barrier that their readers
// have passed. A thread that waits for seconds traps: an error is better than a hang.
#pragma once

#include "kernels/device/dependent_launch.cuh"
#include "kernels/device/global_memory.cuh"
#include "kernels/device/mma.cuh"
#include "kernels/device/named_barrier.cuh"
#include "kernels/device/tma.cuh"
#include "kernels/layers/rotary.cuh"
#include "kernels/sampling/decode/cluster_plan.h"
#include "kernels/sampling/decode_blocks.h"

#include <cstddef>
#include <iterator>

namespace weft::decode_cluster {
template <class T>
struct Layer {
  T *k, *v;
  float eps[2];
  int32_t cache_rows, layout;  // of all heads; of Arguments::layouts
};

struct Layout {
  const int32_t *keys, *key_start, *group_of_head, *first_row, *own_row;
};

template <class T>
struct Arguments {
  T* y;
  const T* x;
  uint32_t *launches, *exchange;  // Prepared
  int64_t set_words;
  const unsigned char* weights;
  int32_t rows, layers, layout_count;
  Stages stages;
  Pace pace;
  float scale;  // of scores, whose exponentials are exp2
  QkAngles qk;
  Activation f;
  Layout layouts[kMostLayouts];
  Layer<T> of_layer[kMostLayers];
};

// Of this rank's head; begin, count: of this rank's keys.
struct List {
  int begin, count, first_row, own;  // own: row of the head's cache that gets the new key, -1: none
};

template <int kRows>
constexpr int exchange_warps() {
  return kRows < 4 ? kRows : 4;
}

// Warps behind those that compute: three that bring weights and keys, then those that exchange.
inline constexpr int kAttentionStream = kWarps, kMlpStream = kWarps + 1, kKeyStream = kWarps + 2,
                     kFirstExchange = kWarps + 3;

template <int kRows>
constexpr int threads() {
  return (kFirstExchange + exchange_warps<kRows>()) * kWarp;
}

// What each layer asks for, read from shared memory there: the compiler would else make copies of
// the loops for each case.
struct Settings {
  float scale, eps;  // of scores, whose exponentials are exp2; of QkForm
  bool changes, norm;
  Activation f;
};

// A softmax over some keys: exponentials relative to `top`, and their sum.
struct Softmax {
  float top, sum;
};

template <class Object>
__device__ __forceinline__ uint32_t address(const Object& object) {
  return device::shared_address(&object);
}

// By one thread: the barriers of the streams. Of weights and keys so many warps say that they have
// read a stage.
template <class AnyShared>
__device__ __forceinline__ void init_streams(AnyShared& s, int of_weights, int of_keys) {
  for (int i = 0; i < 2; ++i) {
    device::mbarrier_init(address(s.attention_full[i]), 1);
    device::mbarrier_init(address(s.mlp_full[i]), 1);
    device::mbarrier_init(address(s.attention_empty[i]), of_weights);
    device::mbarrier_init(address(s.mlp_empty[i]), of_weights);
  }
  for (std::size_t i = 0; i < std::size(s.keys_full); ++i) {
    device::mbarrier_init(address(s.keys_full[i]), 1);
    device::mbarrier_init(address(s.keys_empty[i]), of_keys);
  }
}

// A barrier that counts bytes from other ranks.
__device__ __forceinline__ void init_receiving(const uint64_t& barrier, int bytes) {
  device::mbarrier_init(address(barrier), 1);
  device::mbarrier_arrive_expect_tx(address(barrier), bytes);
}

// Shared memory before the stages of weights and keys. Buffers that other ranks write come first.
template <int kWidth, int kRows>
struct alignas(128) Shared {
  using P = Packing<kWidth>;
  float x[kRows][kWidth];         // the residual stream times the weights of the next norm
  float2 moments[kRows][kRanks];  // sums of the stream and of its squares, by owner
  float qkv[kRows][kQkv];
  float attended[kRows][kRanks][kHeadSize];  // by rank, as the following
  Softmax of_rank[kRows][kRanks];
  float down[kRows][kRanks][P::kOwned];
  float of_warps[kRows][kWarps][kHeadSize];
  Softmax of_warp[kRows][kWarps];
  float hidden[kRows][kHidden];
  float2 stream[kRows][kWarp];    // of several rows: what the exchanging lanes keep
  float turns[kRows][kHeadSize];  // cos and sin of each pair at the position
  Settings settings;
  List lists[kMostLayouts];
  uint2 own[kMostSlots];  // bits: which keys of a slot's halves are the new one
  // Barriers. Two phases of a layer read the stream.
  uint64_t x_here[2][kRows], moments_here[2][kRows], qkv_here[kRows], attended_here[kRows],
      down_here[kRows];
  uint64_t attention_full[2], attention_empty[2], mlp_full[2], mlp_empty[2], keys_full[kMostSlots],
      keys_empty[kMostSlots];

  // Barriers that count bytes from other ranks expect those of the first layer.
  __device__ __forceinline__ void init_barriers(int) {
    constexpr int kReaders = kWarps + exchange_warps<kRows>();
    init_streams(*this, kReaders, kWarps);
    for (int row = 0; row < kRows; ++row) {
      for (int phase = 0; phase < 2; ++phase) {
        init_receiving(x_here[phase][row], kXBytes);
        init_receiving(moments_here[phase][row], kMomentsBytes);
      }
      init_receiving(qkv_here[row], kQkvBytes);
      init_receiving(attended_here[row], kAttendedBytes);
      init_receiving(down_here[row], kDownBytes);
    }
  }

  static constexpr int kXBytes = kWidth * 4, kMomentsBytes = kRanks * 8, kQkvBytes = kQkv * 4,
                       kAttendedBytes = kRanks * (kHeadSize * 4 + 8),
                       kDownBytes = kRanks * P::kOwned * 4;
};

// A ring of `size` stages.
struct Stage {
  int size, at = 0, parity = 0;

  __device__ __forceinline__ void advance() {
    if (++at == size) at = 0, parity ^= 1;
  }
};

template <class T, int kWidth, int kRows>
struct BlockContext {
  using P = Packing<kWidth>;
  using Element = T;
  using SharedType = Shared<kWidth, kRows>;
  static constexpr int kSlotBytes = slot_bytes(kSlotKeys), kThreads = threads<kRows>();
  const Arguments<T>& a;
  Shared<kWidth, kRows>& s;
  uint32_t* exchange = nullptr;  // this launch's set
  int warp, lane, head, rank;
  uint32_t attention, mlp, keys;  // addresses of the first stages

  __device__ __forceinline__ BlockContext(const Arguments<T>& arguments, unsigned char* memory)
      : a(arguments),
        s(*reinterpret_cast<Shared<kWidth, kRows>*>(memory)),
        warp(static_cast<int>(threadIdx.x) / kWarp),
        lane(static_cast<int>(threadIdx.x) % kWarp),
        head(static_cast<int>(blockIdx.x) / kRanks),
        rank(static_cast<int>(blockIdx.x) % kRanks),
        attention(device::shared_address(memory) + sizeof(Shared<kWidth, kRows>)),
        mlp(attention + a.stages.attention * P::kAttentionBytes),
        keys(mlp + a.stages.mlp * P::kMlpBytes) {}

  // Once the launch before has ended.
  __device__ __forceinline__ void choose_exchange() {
    exchange = a.exchange + (*a.launches & 1) * a.set_words;
  }

  // The partial sums of this rank's columns that the first head publishes; kWidth / 2 words further
  // on those of the next.
  __device__ __forceinline__ uint32_t* words(int exchange_number, int row) const {
    return exchange + (exchange_number * a.rows + row) * P::kExchangeWords + rank * P::kWords;
  }

  __device__ __forceinline__ static const float* constants(uint32_t stage) {
    return static_cast<const float*>(__cvta_shared_to_generic(stage));
  }
};

// ---- waiting ----

inline constexpr long long kPatience = 6'000'000'000;  // cycles: about three seconds

__device__ __forceinline__ void wait(const uint64_t& barrier, int parity) {
  const uint32_t at = address(barrier);
  if (device::mbarrier_try_wait(at, parity)) return;
  const long long begin = clock64();
  while (!device::mbarrier_try_wait(at, parity))
    if (clock64() - begin > kPatience) __trap();
}

// The same of a barrier that counts bytes from other ranks; one thread `rearms` it for the next
// phase.
__device__ __forceinline__ void receive(const uint64_t& barrier, int parity, int bytes,
                                        bool rearms) {
  wait(barrier, parity);
  if (rearms) device::mbarrier_arrive_expect_tx(address(barrier), bytes);
}

// ---- between clusters ----

__device__ __forceinline__ uint32_t look(const uint32_t* p) { return device::ld_relaxed_gpu(p); }

__device__ __forceinline__ void publish(uint32_t* p, uint32_t word) {
  device::st_relaxed_gpu(p, word == kAbsent ? kOtherNan : word);
}

// ---- sums ----

// Sums of each of kCount values over a warp; a lane gets that of value lane / (32 / kCount).
template <int kCount>
__device__ __forceinline__ float warp_sums(float (&v)[kCount], int lane) {
  int mask = kWarp / 2;
#pragma unroll
  for (int half = kCount / 2; half > 0; half /= 2, mask /= 2) {
    const bool upper = lane & mask;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float given = upper ? v[i] : v[i + half], kept = upper ? v[i + half] : v[i];
      v[i] = kept + __shfl_xor_sync(kFullWarp, given, mask);
    }
  }
#pragma unroll
  for (; mask > 0; mask /= 2) v[0] += __shfl_xor_sync(kFullWarp, v[0], mask);
  return v[0];
}

// sum + w x, of eight elements of T.
template <class T>
__device__ __forceinline__ float dot(const uint4& w, const float* x, float sum) {
  const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = device::unpack<T>(words[i]);
    sum = fmaf(two.y, x[2 * i + 1], fmaf(two.x, x[2 * i], sum));
  }
  return sum;
}
}  // namespace weft::decode_cluster
