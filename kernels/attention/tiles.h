// SPDX-License-Identifier: MIT
// Tiles of attention on the CPU. A task owns the E rows of one tile (queries or keys) and meets
// their partners (keys or queries) tile by tile. Blocks of owned rows lie transposed, (size, E):
// inner loops run along them, so that softmax needs no sums across a vector register.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/cpu.h"
#include "kernels/interruption.h"
#include "kernels/queue.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace weft::attention {
constexpr std::size_t kLineBytes = 64;  // a cache line, and the widest vector register there is

// One thread's blocks, each (E, columns) or (columns, E), uninitialised, aligned to cache lines.
template <class W, int E>
class Blocks {
 public:
  explicit Blocks(int64_t columns) {
    std::size_t space = static_cast<std::size_t>(columns * E) * sizeof(W) + kLineBytes;
    memory_ = std::make_unique_for_overwrite<char[]>(space);
    void* first = memory_.get();
    next_ = static_cast<W*>(std::align(kLineBytes, space - kLineBytes, first, space));
  }

  W* take(int64_t columns) {
    W* block = next_;
    next_ += columns * E;
    return block;
  }

  W* take_zeros(int64_t columns) {
    W* block = take(columns);
    std::fill(block, next_, W(0));
    return block;
  }

 private:
  std::unique_ptr<char[]> memory_;
  W* next_ = nullptr;
};

// The segment numbers of the positions in E slots; -1 where there is none.
template <int E>
struct SlotSegments {
  int32_t number[E];
  const int32_t* of_partners = nullptr;  // by position; null: no segments

  SlotSegments(const TensorView& owned, const TensorView& partners, int64_t b,
               const int32_t* slots) {
    if (!owned.data) return;
    const int32_t* row = owned.as<int32_t>() + b * owned.shape[1];
    for (int l = 0; l < E; ++l) number[l] = slots[l] < 0 ? -1 : row[slots[l]];
    of_partners = partners.as<int32_t>() + b * partners.shape[1];
  }

  // Bit l: owned row l is of the same segment as the partner at `position`.
  uint64_t same(int32_t position) const {
    const int32_t segment = of_partners[position];
    uint64_t word = 0;
    for (int l = 0; l < E && segment >= 0; ++l) word |= uint64_t{number[l] == segment} << l;
    return word;
  }
};

// The partners in one tile that have at least one pair with an owned row.
template <int E>
struct Partners {
  static constexpr uint64_t kAll = ~uint64_t{0} >> (64 - E);
  int count = 0;
  int32_t position[E];
  uint64_t word[E];  // bit l: the pair with owned row l is attended

  // Of entry e of a query tile's list, and of a key tile's.
  static Partners keys(const TileMap& map, int64_t e, const SlotSegments<E>& segments) {
    return {map.masks_transposed, map.row_mask[e], map.key_order + int64_t{map.row_tile[e]} * E,
            segments};
  }

  static Partners queries(const TileMap& map, int64_t e, const SlotSegments<E>& segments) {
    return {map.masks, map.col_mask[e], map.query_order + int64_t{map.col_tile[e]} * E, segments};
  }

  // `masks`: words of partners; mask -1: every pair of the tile is attended, kSkip: none.
  Partners(const uint64_t* masks, int32_t mask, const int32_t* slots,
           const SlotSegments<E>& segments) {
    for (int r = 0; r < E && mask != kSkip; ++r) {
      uint64_t bits = mask < 0 ? kAll : masks[static_cast<int64_t>(mask) * E + r];
      if (bits != 0 && segments.of_partners) bits &= segments.same(slots[r]);
      if (bits == 0) continue;
      position[count] = slots[r];
      word[count++] = bits;
    }
  }
};

// The rows of x of `partners` -> (count, size)
template <class T, int E>
void gather(const HeadsView& x, int64_t b, int64_t h, const Partners<E>& partners, wide_t<T>* out) {
  for (int r = 0; r < partners.count; ++r, out += x.size) {
    const T* row = x.row<const T>(b, partners.position[r], h);
    for (int64_t d = 0; d < x.size; ++d) out[d] = static_cast<wide_t<T>>(row[d]);
  }
}

// The rows of x that E slots name -> (size, E); zeros for empty slots.
template <class T, int E>
void gather_owned(const HeadsView& x, int64_t b, int64_t h, const int32_t* slots, wide_t<T>* out) {
  for (int l = 0; l < E; ++l) {
    const T* row = slots[l] < 0 ? nullptr : x.row<const T>(b, slots[l], h);
    for (int64_t d = 0; d < x.size; ++d)
      out[d * E + l] = row ? static_cast<wide_t<T>>(row[d]) : wide_t<T>(0);
  }
}

// Stores factor * in (size, E) to the rows that E slots name, or adds it to what an earlier pass
// left.
template <class T, int E>
void scatter_owned(const HeadsView& x, int64_t b, int64_t h, const int32_t* slots,
                   const wide_t<T>* in, wide_t<T> factor, bool add) {
  for (int l = 0; l < E; ++l) {
    if (slots[l] < 0) continue;
    T* row = x.row<T>(b, slots[l], h);
    for (int64_t d = 0; d < x.size; ++d) store(row, d, in[d * E + l] * factor, add);
  }
}

// lse or delta of the queries that E slots name; what stands for empty slots is never used.
template <class W, int E>
void gather_scalars(const TensorView& x, int64_t row, const int32_t* slots, W* out) {
  const W* in = x.as<W>() + row * x.shape[2];
  for (int l = 0; l < E; ++l) out[l] = slots[l] < 0 ? W(0) : in[slots[l]];
}

// The left factor of a matmul: element (r, i) is data[r * row_stride + i * sum_stride].
template <class W>
struct Strided {
  const W* data;
  int64_t row_stride, sum_stride;
};

// R rows of V registers each of c (rows, E) = or += a (rows, sums) b (sums, E). Sums run in order.
template <class W, int E, int R, int V>
inline void multiply_rows(W* c, Strided<W> a, const W* b, int64_t sums, bool add) {
  using Lanes [[gnu::vector_size(kLineBytes)]] = W;
  Lanes sum[R][V] = {};
  for (int64_t i = 0; i < sums; ++i) {
    Lanes x[V];
    std::memcpy(x, b + i * E, sizeof x);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const W factor = a.data[r * a.row_stride + i * a.sum_stride];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[r][v] += factor * x[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    Lanes before[V] = {};
    if (add) std::memcpy(before, c + r * E, sizeof before);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) before[v] += sum[r][v];
    std::memcpy(c + r * E, before, sizeof before);
  }
}

// c (rows, E) = or += a (rows, sums) b (sums, E)
template <class W, int E>
void multiply(W* c, Strided<W> a, const W* b, int64_t rows, int64_t sums, bool add) {
  constexpr int kRegisters = E * sizeof(W) / kLineBytes, V = std::min(kRegisters, 4),
                R = V == 1 ? 8 : 4;
  constexpr int kColumns = V * kLineBytes / sizeof(W);
  for (int first = 0; first < E; first += kColumns) {
    int64_t r = 0;
    for (; r + R <= rows; r += R)
      multiply_rows<W, E, R, V>(c + r * E + first,
                                {a.data + r * a.row_stride, a.row_stride, a.sum_stride}, b + first,
                                sums, add);
    for (; r < rows; ++r)
      multiply_rows<W, E, 1, V>(c + r * E + first,
                                {a.data + r * a.row_stride, a.row_stride, a.sum_stride}, b + first,
                                sums, add);
  }
}

// scores (count, E) = partner rows (count, size) times owned (size, E)
template <class W, int E>
void multiply_scores(W* scores, const W* rows, const W* owned, int64_t count, int64_t size) {
  multiply<W, E>(scores, {rows, size, 1}, owned, count, size, false);
}

// sums (size, E) += transposed partner rows (count, size) times weights (count, E)
template <class W, int E>
void add_weighted(W* sums, const W* rows, const W* weights, int64_t count, int64_t size) {
  multiply<W, E>(sums, {rows, 1, size}, weights, size, count, true);
}

// Calls task(map, b, h, tile) for every query tile, or key tile, of every (batch, head), longest
// lists first. A later pass leaves out the tiles that attend nothing. x: AttentionForward or
// AttentionBackward. An exception cannot leave a parallel loop: after an interrupt the remaining
// tasks do nothing.
template <class X, class F>
void for_each_tile(const X& x, const AttentionPass& pass, bool of_queries, F&& task) {
  const HeadsView& own = of_queries ? x.q : x.k;
  const bool parallel = own.batch * own.time * own.heads * own.size > kParallelElements;
  // of the group with the most
  const int32_t tiles = of_queries ? pass.query_tiles : pass.key_tiles;
  std::atomic<bool> given_up = false;
#pragma omp parallel for collapse(3) schedule(dynamic) if (parallel)
  for (int64_t b = 0; b < own.batch; ++b)
    for (int32_t rank = 0; rank < tiles; ++rank)
      for (int64_t h = 0; h < own.heads; ++h) {
        if (interrupted()) given_up = true;
        const TileMap& map = pass.maps[x.maps.map_of(b, h)];
        if (given_up || rank >= (of_queries ? map.query_tiles : map.key_tiles)) continue;
        const int32_t tile = (of_queries ? map.row_schedule : map.col_schedule)[rank],
                      *start = (of_queries ? map.row_start : map.col_start) + tile;
        if (!map.accumulate || start[0] < start[1]) task(map, b, h, tile);
      }
  if (given_up) throw_interrupted();
}
}  // namespace weft::attention
