// SPDX-License-Identifier: MIT
// DecodeBlocks as one persistent kernel (sm_90a). A cluster of 8 thread blocks takes up to 24 sequences, the
// rows of an MMA, through all residual blocks. Each thread block computes an eighth of the columns of every
// GEMM, attends for an eighth of the (sequence, head) pairs, and sends results into the shared memory of
// their readers, whose barriers count them. Warps are specialised: ten attend and prefetch keys and values of
// the next block; four run MMAs; one loads weights through TMA into a ring. Before a thread block overwrites
// a buffer, it has received from every other what that one computed from the previous contents.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/device/cluster.cuh"
#include "kernels/device/cuda.cuh"
#include "kernels/device/vector8.cuh"
#include "kernels/device/wgmma.cuh"
#include "kernels/layers/rotary.cuh"
#include "kernels/sampling/decode_blocks.h"

namespace weft::decode_cluster {

inline constexpr int kRanks = 8, kMostSequences = 24;
inline constexpr int kWarpsOfPair = 2, kPairsAtOnce = 5;  // pair: (sequence, head)
inline constexpr int kAttentionWarps = kPairsAtOnce * kWarpsOfPair, kMmaWarps = 4;
inline constexpr int kThreads = (kAttentionWarps + kMmaWarps + 1) * kWarp;
inline constexpr int kMostBlocks = 128;  // of a launch; kernels take 32,764 bytes of arguments

// Weights arrive in pieces of up to 64 rows by 128 columns or 32 by 256. The pitch of their rows, and of all
// that is multiplied with them, keeps the 8 lanes that read 16 bytes at a time out of each other's banks.
inline constexpr int kPieceRows = 64;
constexpr int row_pitch(int columns) { return columns * 2 + 64; }
constexpr int columns_of_piece(int rows) { return rows > 32 ? 128 : 256; }
inline constexpr int kPieceBytes = kPieceRows * row_pitch(128);
inline constexpr int kMostPieces = 10;

enum Matrix { kQkv, kProj, kUp, kDown };

template <class T>
struct Block {
  const T *w[4], *b[4];
  const float *norm_w[2], *norm_b[2];
  T *k, *v;
  const std::int32_t *keys, *key_start, *group_of_head, *first_row, *own_row;
  float eps[2];
  std::int32_t rows;  // R
};

struct Sizes {
  int batch, width, heads, qk, v, hidden;
  int sequences;  // of a cluster
  // Rows of a GEMM: one MMA, or one and a half.
  __host__ __device__ int padded() const { return sequences <= 16 ? 16 : kMostSequences; }
  __host__ __device__ int pairs() const { return sequences * heads; }
  // Thread blocks of a cluster take the pairs in order.
  __host__ __device__ int first_pair(int rank) const { return rank * pairs() / kRanks; }
  __device__ int rank_of_pair(int pair) const { return ((pair + 1) * kRanks - 1) / pairs(); }
  __host__ __device__ int of_pair() const { return 2 * qk + v; }
  __host__ __device__ int packed() const { return heads * (2 * qk + v); }
  __host__ __device__ int attended() const { return heads * v; }
  // Rows of the weights in one thread block, and the inner axis.
  __host__ __device__ int rows(int matrix) const {
    return (matrix == kQkv ? packed() : matrix == kUp ? hidden : width) / kRanks;
  }
  __host__ __device__ int inner(int matrix) const {
    return matrix == kProj ? attended() : matrix == kDown ? hidden : width;
  }
};

// Offsets in shared memory, in bytes.
struct Layout {
  int x, normed, attended, hidden, packed, small[2], bias[4], lists, merge, pieces, piece_count;
  // Counts of 8 bytes at the beginning: barriers.
  static constexpr int kFull = 0, kEmpty = kMostPieces, kSmallFull = 2 * kMostPieces,
                       kSmallEmpty = kSmallFull + 2, kXReady = kSmallEmpty + 2, kPackedReady = kXReady + 1,
                       kAttendedReady = kPackedReady + 1, kHiddenReady = kAttendedReady + 1,
                       kBarriers = kHiddenReady + 1;

  int bytes() const { return pieces + piece_count * kPieceBytes; }
};
inline constexpr int kMergeFloats = 128 + 4;  // values, then top and sum
inline constexpr int kListBytes = 32;

// As many pieces as fit into `limit` bytes. small: parameters of norms, then biases (at bias[] from there).
inline Layout layout_of(const Sizes& s, int limit) {
  Layout l = {};
  int at = (Layout::kBarriers * 8 + 127) / 128 * 128;
  const auto take = [&at](int bytes) {
    const int from = at;
    at += (bytes + 127) / 128 * 128;
    return from;
  };
  l.x = take(s.padded() * row_pitch(s.width));
  l.normed = take(s.padded() * row_pitch(s.width));
  l.attended = take(s.padded() * row_pitch(s.attended()));
  l.hidden = take(s.padded() * row_pitch(s.hidden));
  l.packed = take((s.pairs() + kRanks - 1) / kRanks * s.of_pair() * 2);
  int small = 4 * s.width * 4;
  for (const int matrix : {kQkv, kProj, kUp, kDown}) {
    l.bias[matrix] = small;
    small += s.rows(matrix) * 2;
  }
  for (int& copy : l.small) copy = take(small);
  l.lists = take(2 * kAttentionWarps * kListBytes);
  l.merge = take(2 * kPairsAtOnce * kMergeFloats * 4);
  l.pieces = at;
  l.piece_count = std::clamp((limit - at) / kPieceBytes, 0, kMostPieces);
  return l;
}

template <class T>
struct Arguments {
  T* y;
  const T* x;
  Sizes sizes;
  Layout layout;
  float scale;
  QkAngles qk;
  Activation f;
  int blocks;
  Block<T> block[kMostBlocks];
};

// ---- instructions ----

// Stores 16 bytes in another thread block and counts them in at its barrier.
__device__ __forceinline__ void send(std::uint32_t to, const uint4& value, std::uint32_t barrier) {
  WEFT_SM90_ASM(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "r"(barrier)
      : "memory");
}
// Traps after ten seconds: an error is better than a hang.
__device__ __forceinline__ void wait_for(std::uint32_t barrier, int parity) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr long long kPatience = 20'000'000'000;  // cycles
  for (long long began = 0;;) {
    int done;
    asm volatile(
        "{\n.reg .pred done;\nmbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\nselp.b32 %0, 1, 0, "
        "done;\n}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    if (done) return;
    if (began == 0) began = clock64();
    if (clock64() - began > kPatience) __trap();
  }
#endif
}
// A bulk copy of TMA; addresses and bytes are multiples of 16.
__device__ __forceinline__ void copy_bulk(std::uint32_t to, const void* from, int bytes,
                                          std::uint32_t barrier) {
  WEFT_SM90_ASM(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void store_16(std::uint32_t address, const uint4& v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}
__device__ __forceinline__ std::uint32_t load_4(std::uint32_t address) {
  std::uint32_t r;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(r) : "r"(address));
  return r;
}

// A position in the ring of pieces.
struct RingPosition {
  int at = 0, parity = 0;
  __device__ __forceinline__ void advance(int count) {
    if (++at == count) at = 0, parity ^= 1;
  }
};

// What the warps of every role know.
template <class T>
struct Scene {
  const Arguments<T>& a;
  std::uint32_t memory;  // shared, this thread block's
  int rank, first_sequence;

  __device__ __forceinline__ std::uint32_t barrier(int which) const { return memory + which * 8; }
};

}  // namespace weft::decode_cluster
