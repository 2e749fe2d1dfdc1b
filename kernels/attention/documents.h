// SPDX-License-Identifier: MIT
// Packed documents: where those of rows begin, and tile maps for all forms that keep segments
// apart.
#pragma once

#include "kernels/attention/attention.h"

namespace weft {
// start[b, t] = the last r in 1 .. t with tokens[b, r - 1] = separator; 0: there is none.
// Row t of a model holds token t - 1 (kernels/layers/embedding.h): a separator is predicted from
// the document that it ends, and is the first that the next document sees. Starts serve as
// Segments.
struct DocumentStarts {
  static constexpr const char* kName = "document_starts";
  TensorView start;   // (B, T)  i32
  TensorView tokens;  // (B, T)  i32
  int32_t separator = 0;
  // Sampling: the only row that is wanted, in the queue's memory; start is (B, 1). null: all of
  // them.
  const int32_t* row = nullptr;
};

WEFT_KERNEL(DocumentStarts);

// The pairs of `maps` whose query and key are of one segment (as Segments), as maps of each
// sequence's own.
struct SegmentMaps {
  static constexpr const char* kName = "segment_maps";
  TensorView tables{};      // (table_size())  i32: masks of each pass, sequence and group
  TileMap* made = nullptr;  // (passes, B, groups)  in the queue's memory
  AttentionMaps maps;       // the same for all sequences, T queries and keys
  TensorView segments{};    // (B, T)  i32, of slots where there are orders
  // The segments are starts of documents (DocumentStarts): passes over a band stay such, with
  // reaches.
  bool documents = false;
  // (B, slots)  i32: the order of each sequence in place of that of `maps`; or absent
  TensorView orders{};
  int64_t stored = 0;  // with orders: maps of sequences from here on accumulate

  // time: T with documents, else 0.
  static int64_t table_size(const AttentionMaps&, int64_t batch, int64_t time);
  // of documents in a band: in tables, after the masks of all passes
  int32_t* reaches(int pass) const;
  AttentionMaps result() const;  // points to tables and made
};

WEFT_KERNEL(SegmentMaps);

// AttentionPass::reaches of row t: back and ahead. start: of the rows of its sequence.
struct Reaches {
  int32_t back, ahead;
};

constexpr Reaches reaches_of(const Band& band, const int32_t* start, int32_t t, int32_t time) {
  const int32_t back = (t - start[t]) / band.stride + 1, last = (time - 1 - t) / band.stride + 1;
  int32_t ahead = 1, most = last < band.reach ? last : band.reach;
  while (ahead < most) {  // starts ascend
    const int32_t middle = (ahead + most + 1) / 2;
    start[t + (middle - 1) * band.stride] <= t ? ahead = middle : most = middle - 1;
  }
  return {back < band.reach ? back : band.reach, ahead};
}

// Pairs of tiles of a pass for which a table has room: even, so that tables begin at 16 bytes.
constexpr int64_t room_of(const AttentionPass& pass) { return pass.visited + pass.visited % 2; }

constexpr int64_t segment_table_size(const AttentionPass& pass) {
  return room_of(pass) * (4 * pass.edge + 2);
}

// The order of a sequence; null: that of the maps.
constexpr const int32_t* order_of(const TensorView& orders, int64_t b) {
  return orders.data ? static_cast<const int32_t*>(orders.data) + b * orders.shape[1] : nullptr;
}

// The table of a sequence and group, the index-th of a pass with tiles of edge E.
template <int E>
struct SegmentTable {
  uint64_t *masks, *masks_transposed;
  int32_t *row_mask, *col_mask;

  constexpr SegmentTable(int32_t* first, int64_t index, const AttentionPass& pass)
      : masks(reinterpret_cast<uint64_t*>(first + index * segment_table_size(pass))),
        masks_transposed(masks + room_of(pass) * E),
        row_mask(reinterpret_cast<int32_t*>(masks_transposed + room_of(pass) * E)),
        col_mask(row_mask + room_of(pass)) {}

  constexpr TileMap in(TileMap map, const int32_t* order, bool accumulate) const {
    if (order) map.query_order = map.key_order = order, map.accumulate = accumulate;
    map.masks = masks, map.masks_transposed = masks_transposed;
    map.row_mask = row_mask, map.col_mask = col_mask;
    return map;
  }
};
}  // namespace weft
