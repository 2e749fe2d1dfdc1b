// SPDX-License-Identifier: MIT
// Sparse self-attention (Child et al. 2019, arXiv 1904.10509, eq. 2-4), computed as in
// FlashAttention (Dao et al. 2022, arXiv 2205.14135): the matrix of scores is never stored, forward
// or backward.
//   y_i = sum_{j in S_i} softmax_j(scale * q_i . k_j) v_j
// Where S_i is empty, y_i = 0 and lse_i = -inf. There are T queries and Tk keys; in self-attention
// Tk = T. definition.h says it in plain loops, attention.cpp computes it fast on a CPU,
// attention.cu on GPUs. The kernels know nothing of "strided" or "fixed": they go through a
// TileMap, which PackedMaps (src/patterns/packed_maps.h) makes from any AttentionPattern.
#pragma once

#include "kernels/attention/band.h"
#include "kernels/attention/heads_view.h"
#include "kernels/diagnostics/launch_profile.h"
#include "kernels/queue.h"

#include <cmath>

namespace weft {
// Columns `first_column .. first_column + heads * size - 1` of a (B, T, columns) tensor as heads,
// head-major.
inline HeadsView heads_of(const TensorView& x, int64_t first_column, int64_t heads, int64_t size) {
  WEFT_CHECK(x.rank == 3 && first_column + heads * size <= x.shape[2],
             "heads_of: (B, T, columns) with columns >= ", first_column + heads * size, ", got ",
             shape_text(x));
  void* first = static_cast<char*>(x.data) + first_column * size_of(x.dtype);
  const int64_t row = x.shape[2], sequence = x.shape[1] * row;
  return {first, x.dtype, x.shape[0], x.shape[1], heads, size, sequence, row, size};
}

// A cache (B, R, D) as heads: each head may own any of its rows.
inline HeadsView rows_of(const TensorView& x, int64_t heads) {
  WEFT_CHECK(x.rank == 3, "rows_of: (B, rows, D), got ", shape_text(x));
  return {x.data,     x.dtype, x.shape[0], x.shape[1], heads, x.shape[2], x.shape[1] * x.shape[2],
          x.shape[2], 0};
}

// key tiles that are worked on together where dQ is summed by turns
inline constexpr int kTaskTiles = 2;
inline constexpr int kSkip = -2;  // mask index of a tile without an attended pair
// The edge of tiles for patterns finer than kTile: the rows of one matrix instruction.
inline constexpr int kSmallTile = 16;

// The set of attended pairs as square tiles of slots, usually of edge kTile: one 64-bit mask word
// per row. Two orders put queries and keys into slots, so that few tiles hold all pairs; -1 marks
// an empty slot. All pointers are in the queue's memory.
struct TileMap {
  int32_t query_tiles = 0, key_tiles = 0;
  // false: every query and key has a slot, and the pass stores y, lse and the gradients (0, -inf
  // and 0 where nothing is attended). true: the pass goes on from what earlier passes over the same
  // heads left there.
  bool accumulate = false;
  const int32_t* query_order = nullptr;  // (query_tiles * edge)  slot -> position, -1: empty
  const int32_t* key_order = nullptr;    // (key_tiles * edge)
  // Query tile -> its key tiles, ascending (forward, dQ): entries row_start[q] .. row_start[q + 1]
  // - 1.
  const int32_t *row_start = nullptr, *row_tile = nullptr, *row_mask = nullptr;
  // Key tile -> its query tiles, ascending (dK, dV): the same set, transposed.
  const int32_t *col_start = nullptr, *col_tile = nullptr, *col_mask = nullptr;
  // How many earlier tasks (kTaskTiles neighbours of col_schedule) have the entry's query tile; ~n
  // in the last one. It fixes the order of sums over tasks.
  const int32_t* col_turn = nullptr;
  // Tiles, or runs of neighbours, with the most work first: the order in which a grid takes them.
  const int32_t *row_schedule = nullptr, *col_schedule = nullptr;
  // mask -1: every pair of the tile is attended (and no slot is empty). kSkip, in row_mask of tiles
  // of 64 (and in col_mask where sequences have orders of their own): none. Otherwise words [mask *
  // edge + r]: r: query slot in the tile, bit k: key slot k is attended
  const uint64_t* masks = nullptr;
  // r: key slot in the tile, bit q: query slot q attends it
  const uint64_t* masks_transposed = nullptr;
};

// One TileMap for each group of heads with equal patterns, all with tiles of the same edge: one
// launch.
struct AttentionPass {
  // (groups), or (B, groups): AttentionMaps::map_of(), in the queue's memory. No tiles: a group has
  // no part.
  const TileMap* maps = nullptr;
  int32_t edge = kTile;                    // kTile or kSmallTile
  int32_t query_tiles = 0, key_tiles = 0;  // the largest of any group: sizes of the grids
  int64_t visited = 0;                     // pairs of tiles, of the group with the most
  // Groups of 8, 16, 32 or 64 slots hold consecutive positions (empty past the end) or none; 0:
  // unknown.
  int32_t query_run = 0, key_run = 0;
  // The one band that every head attends; queries and keys are equally many, a multiple of its
  // stride.
  Band band{};
  // (2, B, T), packed documents in a band: rows of its column that row t sees back, and that see it
  // as a key, both counted with t itself and at most band.reach. null: as many as the band has.
  const int32_t* reaches = nullptr;
  bool accumulate = false;  // TileMap::accumulate of every group; with a band no group differs
};

// Disjoint parts of the pairs, one pass after the other, each with its own good order of slots.
struct AttentionMaps {
  static constexpr int kMaxPasses = 8;
  AttentionPass pass[kMaxPasses];
  int32_t passes = 0;
  const int32_t* group_of_head = nullptr;  // (H)  in the queue's memory
  int32_t groups = 0;
  int32_t of_sequence = 0;  // maps of a sequence's own: groups; 0: all have the same

  constexpr int64_t map_of(int64_t b, int64_t h) const {
    return b * of_sequence + (groups == 1 ? 0 : group_of_head[h]);
  }
};

// Numbers of queries and keys, (B, T) i32 each, both or neither. A pair is attended only where both
// are equal and not negative: packed documents do not see each other, and padding (negative)
// neither sees nor is seen.
struct Segments {
  TensorView queries{}, keys{};

  explicit operator bool() const { return queries.data != nullptr; }
};

// A family of CUDA kernels; `automatic`: attention::select() takes the fastest that covers the
// case.
enum class AttentionForm { automatic, simple, general, hopper };

struct AttentionForward {
  static constexpr const char* kName = "attention_forward";
  HeadsView y;  // (B, T, H, Dv)   T
  // (B, H, T)       wide(T): natural log-sum-exp of each row: all the backward pass keeps
  TensorView lse;
  HeadsView q;  // (B, T, H, Dqk)  T
  HeadsView k;  // (B, Tk, H, Dqk) T
  HeadsView v;  // (B, Tk, H, Dv)  T
  AttentionMaps maps;
  double scale = 1;  // 1 / sqrt(Dqk)
  Segments segments{};
  AttentionForm form = AttentionForm::automatic;

  // The pairs that are attended are known to the pattern alone: flops stay 0.
  LaunchCost cost() const {
    return {
        .bytes = y.bytes() + q.bytes() + k.bytes() + v.bytes() + bytes_of({lse}),
        .flops = 0,
        .shape = "",
    };
  }
};

WEFT_KERNEL(AttentionForward);

// With p_ij = exp(scale * s_ij - lse_i), delta_i = dy_i . y_i, ds_ij = p_ij (dy_i . v_j - delta_i):
//   dq_i = scale * sum_j ds_ij k_j,  dk_j = scale * sum_i ds_ij q_i,  dv_j = sum_i p_ij dy_i
// Two kernels (query-stationary for dQ, key-stationary for dK and dV), or one that accumulates dQ
// in a fixed order: no atomics, same inputs, same bits. Gradients are stored, not added; every
// position is written, those of keys that nobody attends with 0.
struct AttentionBackward {
  static constexpr const char* kName = "attention_backward";
  HeadsView dq, dk, dv;  // like q, k, v
  TensorView delta;      // (B, H, T)  wide(T): scratch, written here
  HeadsView dy, y;       // (B, T, H, Dv)
  TensorView lse;        // (B, H, T)
  HeadsView q, k, v;
  AttentionMaps maps;
  double scale = 1;
  Segments segments{};
  AttentionForm form = AttentionForm::automatic;
  TensorView scratch{};  // (backward_scratch() or more)  f32, or absent: the pass takes longer

  LaunchCost cost() const {
    return {
        .bytes = dy.bytes() + y.bytes() + 2 * (q.bytes() + k.bytes() + v.bytes()) +
                 bytes_of({lse, delta}),
        .flops = 0,
        .shape = "",
    };
  }
};

WEFT_KERNEL(AttentionBackward);

// Elements of AttentionBackward::scratch that make it faster; 0: there is nothing to gain.
inline int64_t backward_scratch(const CpuQueue&, const AttentionBackward&) { return 0; }

int64_t backward_scratch(const CudaQueue&, const AttentionBackward&);
}  // namespace weft
