// SPDX-License-Identifier: MIT
// The plan of DecodeBlocks as one persistent kernel, plain functions that tests check on the CPU:
// who computes what, where it is exchanged, what lies in shared memory. The order of sums is that
// of any batch.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weft::decode_persistent {
// A group of thread blocks takes up to 16 sequences, the rows of an MMA, through all residual
// blocks; 8 where shared memory has no room for more.
inline constexpr int kMostRows = 16;
inline constexpr int kWarps = 16, kThreads = kWarps * 32;
// GEMMs: columns in tiles of 8. A warp has one of 8 slices of the inner axis and every other tile.
inline constexpr int kTileColumns = 8, kSlices = 8, kHalves = kWarps / kSlices;
inline constexpr int kLoads = 8;  // 16-byte loads of weights that a lane has in flight
// tiles that are summed over the slices together
inline constexpr int kChunkTiles = kHalves * kLoads / 2;
inline constexpr int kStep = 32;  // inner columns of a step: two MMAs
// Attention: an item is a part of the list of a (sequence, head) pair, for one warp, in two stages.
inline constexpr int kPartKeys = 32, kStageKeys = 16;
inline constexpr int kMostLayers = 64, kMostLayouts = 8,
                     kMostLists = 128;           // of a launch; lists: layouts x heads
inline constexpr int kMostWidth = kThreads * 2;  // norms: a thread stages 16 bytes of parameters

// Where the share of a rank begins, of `count` things dealt to `ranks`.
constexpr int first_of(int rank, int count, int ranks) { return rank * count / ranks; }

constexpr int parts_of(int keys) { return (keys + kPartKeys - 1) / kPartKeys; }

// GEMMs of a residual block. Each writes the exchange buffer of its number; attention writes the
// fifth.
enum Matrix { kQkv, kProj, kUp, kDown, kAttended, kBuffers };

struct Sizes {
  int batch, width, heads, qk, v, hidden;

  constexpr int packed() const { return heads * (2 * qk + v); }

  constexpr int attended() const { return heads * v; }

  constexpr int columns(int buffer) const {
    return buffer == kQkv        ? packed()
           : buffer == kUp       ? hidden
           : buffer == kAttended ? attended()
                                 : width;
  }

  constexpr int inner(int matrix) const {
    return matrix == kProj ? attended() : matrix == kDown ? hidden : width;
  }
};

// The exchange buffers, in 32-bit words of two elements: a layer's follow each other, each (copies,
// batch, columns). All thread blocks of a group read the same few lines at the same time, and a
// slice of the L2 cache serves them one by one. So buffers of few rows have copies, each for some
// of the readers.
struct Exchange {
  int row[kBuffers], before[kBuffers], of_layer, copies, batch;

  constexpr Exchange(const Sizes& s, int copies_of_each)
      : row{},
        before{},
        of_layer(0),
        copies(copies_of_each),
        batch(s.batch) {
    for (int b = 0; b < kBuffers; ++b) {
      row[b] = s.columns(b) / 2;
      before[b] = of_layer;
      of_layer += row[b] * batch * copies_of(b);
    }
  }

  // A power of 2. Queries, keys and values have few readers.
  constexpr int copies_of(int buffer) const { return buffer == kQkv ? 1 : copies; }

  // Of the first copy; the next one is `batch` rows further on.
  constexpr int at(int layer, int buffer, int sequence) const {
    return layer * of_layer + before[buffer] + sequence * row[buffer];
  }

  constexpr int to_copy(int buffer, int rank) const {
    return (rank & (copies_of(buffer) - 1)) * batch * row[buffer];
  }
};

constexpr int copies_for(int batch) { return batch > 4 ? 1 : batch > 2 ? 2 : batch > 1 ? 4 : 8; }

// Sequences are dealt to groups, and what a group does to its thread blocks.
struct Groups {
  int groups, ranks;  // ranks: thread blocks of a group

  constexpr Groups(int batch, int blocks, int most_rows)
      : groups((batch + most_rows - 1) / most_rows),
        ranks(blocks / groups) {}

  constexpr int first_row(int group, int batch) const { return first_of(group, batch, groups); }
};

// The (sequence, head) pairs of a thread block in one layer go in rounds whose items have slots in
// shared memory. Item j is part j / in(round) of pair j % in(round), and belongs to warp j %
// kWarps.
struct Rounds {
  int pairs, most, each;  // most: parts of the longest list, at least 1; each: pairs of a round

  constexpr bool has(int round) const { return round * each < pairs; }

  constexpr int in(int round) const { return std::min(each, pairs - round * each); }

  constexpr int items(int round) const { return most * in(round); }
};

constexpr Rounds rounds_of(int pairs, int longest, int slots) {
  const int most = std::max(1, parts_of(longest));
  return {pairs, most, std::max(1, std::min(pairs, slots / most))};
}

// The items of one warp, layer after layer. rounds(layer) gives Rounds.
struct Cursor {
  int layer, round, item;

  template <class OfLayer>
  constexpr void settle(int warp, int layers, const OfLayer& rounds) {
    for (; layer < layers; ++layer, round = 0)
      for (const Rounds r = rounds(layer); r.has(round); ++round, item = warp)
        if (item < r.items(round)) return;
  }
};

// Offsets in shared memory, in bytes.
struct Memory {
  int rows;         // 8 or 16: of the operands
  int stages;       // of a warp: 1 or 2
  int stage_bytes;  // keys, then values
  int slot_floats;  // values, top, sum
  int operand, sums[2], norm, blocks, lists, rounds, place, items, stage, bytes;

  constexpr int pitch(int columns) const {
    return columns * 2 + 64;
  }  // 8 lanes that read 16 bytes: 8 bank groups

  constexpr int sums_bytes() const { return kSlices * kChunkTiles * rows * kTileColumns * 4; }

  constexpr int slots() const { return sums_bytes() / (slot_floats * 4); }
};

// qk_parts, v_parts: of 64 elements. block_bytes: of the arguments of a layer.
constexpr Memory memory_of(const Sizes& s, int rows, int stages, int qk_parts, int v_parts,
                           int block_bytes) {
  Memory m = {};
  int at = 0;
  const auto take = [&at](int bytes) {
    const int from = at;
    at += (bytes + 127) / 128 * 128;
    return from;
  };
  m.rows = rows <= 8 ? 8 : 16;
  m.stages = stages;
  m.stage_bytes = kStageKeys * 128 * (qk_parts + v_parts);
  m.slot_floats = 64 * v_parts + 4;
  m.operand = take(m.rows * m.pitch(std::max({s.width, s.hidden, s.attended()})));
  for (int& sums : m.sums) sums = take(m.sums_bytes());
  m.norm = take(2 * s.width * 4);
  m.blocks = take(kMostLayers * block_bytes);
  m.lists = take(kMostLists * 16);
  m.rounds = take(kMostLayouts * static_cast<int>(sizeof(Rounds)));
  m.place = take(64);
  m.items = take(kWarps * 2 * 32);
  m.stage = take(kWarps * stages * m.stage_bytes);
  m.bytes = at;
  return m;
}

// Lists of at most so many keys have slots in any batch.
constexpr int longest_list(const Memory& of_8_rows) { return of_8_rows.slots() * kPartKeys; }
}  // namespace weft::decode_persistent
