// SPDX-License-Identifier: MIT
// Which rows of dy are added to which row of an embedding table: lists sorted by table row.
#pragma once

#include "kernels/device/cuda.cuh"
#include "kernels/layers/embedding.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cub/device/device_radix_sort.cuh>

namespace weft::embedding {
inline constexpr int kThreads = 256;

// Positions of the tokens of a batch, and the conditions of its sequences; null where absent.
struct Sequences {
  const int32_t *offsets, *positions, *conditions;
  int64_t kinds;  // conditions of a sequence

  __device__ __forceinline__ int64_t place(int64_t b, int64_t token, int64_t time) const {
    if (positions) return positions[b * time + token];
    return token + (offsets ? offsets[b] : 0);
  }
};

inline Sequences sequences_of(const TensorView& offsets, const TensorView& positions,
                              const TensorView& conditions) {
  return {offsets.or_null<int32_t>(), positions.or_null<int32_t>(), conditions.or_null<int32_t>(),
          conditions ? conditions.shape[1] : 0};
}

// Entry e says that row `row[e]` of dy is added to table row `owner[e]`. Entries are sorted by
// owner; those of table row r are start[r] .. start[r + 1] - 1.
struct Listing {
  int32_t *owner, *row, *start;
  int64_t entries, table_rows;
};

// Entry i = (b, p) for b < B, p < T - shift: token p of sequence b, which row p + shift of dy
// embeds.
static __global__ void __launch_bounds__(kThreads)
    list_tokens(int32_t* token, int32_t* row, const int32_t* tokens, int64_t entries, int64_t time,
                int shift) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= entries) return;
  const int64_t b = i / (time - shift), p = i % (time - shift);
  token[i] = tokens[b * time + p];
  row[i] = static_cast<int32_t>(b * time + p + shift);
}

// The same for places that differ from sequence to sequence: the table row is place / divisor %
// table_rows.
static __global__ void __launch_bounds__(kThreads)
    list_places(int32_t* owner, int32_t* row, const Sequences sequences, int64_t entries,
                int64_t time, int64_t divisor, int64_t table_rows) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= entries) return;
  const int64_t b = i / (time - 1), p = i % (time - 1);
  owner[i] = static_cast<int32_t>(sequences.place(b, p, time) / divisor % table_rows);
  row[i] = static_cast<int32_t>(b * time + p + 1);
}

// start[r] = first entry whose owner is not below r, r in [0, table_rows].
static __global__ void __launch_bounds__(kThreads) find_starts(const Listing list) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (r > list.table_rows) return;
  int64_t low = 0, high = list.entries;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (list.owner[middle] < r) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  list.start[r] = static_cast<int32_t>(low);
}

// How many of the positions 0 .. positions - 1 have (p / divisor) % rows < r.
__device__ __forceinline__ int64_t positions_below(int64_t positions, int64_t divisor, int64_t rows,
                                                   int64_t r) {
  const int64_t cycle = rows * divisor;
  return positions / cycle * r * divisor + min(positions % cycle, r * divisor);
}

// The same listing in closed form: within a table row, sequence by sequence, positions ascending.
static __global__ void __launch_bounds__(kThreads)
    list_positions(const Listing list, int64_t time, int64_t divisor) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t positions = time - 1, batch = list.entries / positions;
  if (i <= list.table_rows)
    list.start[i] =
        static_cast<int32_t>(batch * positions_below(positions, divisor, list.table_rows, i));
  if (i >= list.entries) return;
  const int64_t b = i / positions, p = i % positions, r = p / divisor % list.table_rows;
  const int64_t below = positions_below(positions, divisor, list.table_rows, r);
  const int64_t of_row = positions_below(positions, divisor, list.table_rows, r + 1) - below;
  // in row, sequence
  const int64_t earlier = p / (list.table_rows * divisor) * divisor + p % divisor;
  const int64_t entry = batch * below + b * of_row + earlier;
  list.owner[entry] = static_cast<int32_t>(r);
  list.row[entry] = static_cast<int32_t>(b * time + p + 1);
}

// The listing of one table, in the workspace from 0 to `offset`.
struct Scratch {
  std::size_t offset = 0;
  Listing list;
};

inline Scratch take_scratch(const CudaQueue& q, int64_t entries, int64_t table_rows) {
  const char* kernel = EmbeddingBackward::kName;
  Scratch s;
  s.list.entries = entries;
  s.list.table_rows = table_rows;
  s.list.owner = take_workspace<int32_t>(q, s.offset, entries, kernel);
  s.list.row = take_workspace<int32_t>(q, s.offset, entries, kernel);
  s.list.start = take_workspace<int32_t>(q, s.offset, table_rows + 1, kernel);
  return s;
}

// `list_entries(keys, rows)` launches what writes owner and row of every entry; the sort is stable.
template <class ListEntries>
void launch_sorted_listing(CudaQueue& q, Scratch& s, ListEntries&& list_entries) {
  const Listing& list = s.list;
  if (list.entries > 0) {
    auto* keys = take_workspace<int32_t>(q, s.offset, list.entries, EmbeddingBackward::kName);
    auto* values = take_workspace<int32_t>(q, s.offset, list.entries, EmbeddingBackward::kName);
    list_entries(keys, values);
    const int bits =
        std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(list.table_rows - 1))));
    const auto entries = static_cast<int>(list.entries);
    std::size_t bytes = 0;
    WEFT_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, list.owner, values,
                                                    list.row, entries, 0, bits, q.stream));
    void* scratch =
        take_workspace<char>(q, s.offset, static_cast<int64_t>(bytes), EmbeddingBackward::kName);
    WEFT_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(scratch, bytes, keys, list.owner, values,
                                                    list.row, entries, 0, bits, q.stream));
  }
  find_starts<<<blocks_for(list.table_rows + 1, kThreads), kThreads, 0, q.stream>>>(list);
}
}  // namespace weft::embedding
