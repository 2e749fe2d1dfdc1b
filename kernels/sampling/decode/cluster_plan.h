// SPDX-License-Identifier: MIT
// The plan of DecodeBlocks by clusters, plain functions that tests check on the CPU. A cluster of
// eight thread blocks, the ranks, computes a head and an eighth of the MLP's hidden units for each
// 8 heads. A rank owns an eighth of the columns of the residual stream. Weights are packed: what a
// thread block reads in a layer is contiguous, in the order in which its lanes read.
#pragma once

#include <cstdint>

namespace weft::decode_cluster {
inline constexpr int kRanks = 8, kHeadSize = 64;
inline constexpr int kWarps = 8;     // that compute
inline constexpr int kMostRows = 4;  // sequences of a launch
inline constexpr int kMostLayers = 64, kMostLayouts = 8;
// Keys of a rank come in slots of two halves. Of each half a warp takes four keys.
inline constexpr int kHalfKeys = 32, kSlotKeys = 2 * kHalfKeys, kMostSlots = 8;
inline constexpr int kRowBytes = kHeadSize * 2;

// Keys, then values.
constexpr int slot_bytes(int keys) { return 2 * keys * kRowBytes; }

inline constexpr int kQkv = 3 * kHeadSize, kQkvColumns = kQkv / kRanks;  // of a head; of a rank
inline constexpr int kHidden = 32;            // hidden units of a thread block
inline constexpr int kConstantsBytes = 1024;  // f32 numbers before the matrices of a part
inline constexpr uint32_t kAbsent = 0xffffffffu, kOtherNan = 0x7fff7fffu;

// Where the share of a rank begins, of `count` keys.
constexpr int first_of(int rank, int count) {
  return static_cast<int>(int64_t{rank} * count / kRanks);
}

// The constants of both parts, numbers from the beginning: of each column of the part's first
// matrix the sum of its weights times those of the norm, then its bias with the bias of the norm;
// then, of each column that the rank owns, the bias of the second matrix (zero but in cluster 0)
// and the weight of the norm.
template <int kColumnsOfFirst, int kOwned>
struct Constants {
  static constexpr int kSums = 0, kBiases = kColumnsOfFirst, kBranchBiases = 2 * kColumnsOfFirst,
                       kNormWeights = kBranchBiases + kOwned;
  static_assert((kNormWeights + kOwned) * 4 <= kConstantsBytes);
};

// Sizes of a model whose heads have 64 features and whose MLP is four times as wide as the stream,
// and the packed weights of one thread block in one layer, in bytes: the attention part (constants,
// its columns of q | k | v, its columns of the projection), then the MLP part (constants, its
// hidden units' columns of `up` and rows of `down`).
template <int kWidth>
struct Packing {
  static_assert(kWidth == 256 || kWidth == 512);
  static constexpr int kHeads = kWidth / kHeadSize, kBlocks = kHeads * kRanks;
  static constexpr int kOwned = kWidth / kRanks, kWords = kOwned / 2;  // columns of a rank; pairs
  static constexpr int kChunks = kWidth / 256;  // of 16 bytes that a lane reads of a column
  static constexpr int kMatrices = kConstantsBytes;
  static constexpr int kProj = kMatrices + kQkvColumns * kWidth * 2;
  static constexpr int kAttentionBytes = kProj + kOwned * kHeadSize * 2;
  static constexpr int kDown = kMatrices + kHidden * kWidth * 2;
  static constexpr int kMlpBytes = kDown + kHidden * kWidth * 2;
  static constexpr int kBytes = kAttentionBytes + kMlpBytes;
  using OfAttention = Constants<kQkvColumns, kOwned>;
  using OfMlp = Constants<kHidden, kOwned>;

  // The row of the (q | k | v) matrix that column i of a rank is.
  static constexpr int qkv_row(int head, int rank, int i) {
    const int feature = rank * kQkvColumns + i;
    return feature / kHeadSize * kWidth + head * kHeadSize + feature % kHeadSize;
  }

  // Element i of the packed columns of q | k | v, or of `up`: the column, and which inner element.
  static constexpr int qkv_column(int i) { return i / kWidth; }

  static constexpr int up_column(int i) { return i / kWidth; }

  static constexpr int qkv_inner(int i) {
    const int e = i % 8, lane = i / 8 % 32, chunk = i / 256 % kChunks;
    return (2 * chunk + e / 4) * 128 + lane * 4 + e % 4;
  }

  static constexpr int up_inner(int i) { return qkv_inner(i); }

  // Element i of the packed projection: the rank's column, and the feature of the head.
  static constexpr int proj_column(int i) {
    const int e = i % 8, chunk = i / 256 % kChunks, warp = i / (256 * kChunks);
    return (warp * kChunks + chunk) * 4 + e / 2;
  }

  static constexpr int proj_feature(int i) { return i / 8 % 32 * 2 + i % 2; }

  // Element i of the packed rows of `down`: the hidden unit of the thread block, and the column.
  static constexpr int down_unit(int i) { return i / (4 * kWidth) * 4 + i % 8 / 2; }

  static constexpr int down_column(int i) { return i / 8 % (kWidth / 2) * 2 + i % 2; }

  // Words of an exchange: each head's partial sums of a row.
  static constexpr int kExchangeWords = kHeads * kWidth / 2;
};

// What lies in memory behind DecodeBlocks::prepared, in bytes: the number of launches so far, two
// sets of words of all exchanges, and the packed weights of all layers and thread blocks.
struct Prepared {
  int64_t set_words, exchange, weights, bytes;

  // exchange_words: of one exchange, all rows.
  constexpr Prepared(int width, int64_t layers, int64_t exchange_words, int64_t bytes_of_block)
      : set_words(2 * layers * exchange_words),
        exchange(128),
        weights(exchange + 2 * set_words * 4),
        bytes(weights + layers * (width / kHeadSize) * kRanks * bytes_of_block) {}
};

// How many layers ahead parts of the weights are loaded, and how many slots of keys.
struct Stages {
  int attention, mlp, keys;
};

// Cycles between two copies of a stream: bursts would delay the exchanges.
struct Pace {
  int attention, mlp, keys;
};
}  // namespace weft::decode_cluster
