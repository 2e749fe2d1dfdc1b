// SPDX-License-Identifier: MIT
// Attention as a ladder, on the CPU and on a GPU. Every rung computes the same y, lse, dQ, dK and
// dV, and adds one idea to the rung before it. The last rungs are the real kernels. README.md tells
// the ladder; `bench ladder` checks the rungs and times them.
#pragma once

#include "kernels/attention/attention.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>

namespace weft::ladder {
// The pattern: whether query i of a head attends key j.
using Attends = std::function<bool(int64_t head, int64_t i, int64_t j)>;

// The same in the memory of a GPU, where nobody can be asked: a bit for each pair.
struct PairBits {
  const uint64_t* words = nullptr;  // (groups of heads, queries, row_words)
  int64_t queries = 0, row_words = 0;

  // Bit c: query i attends key 64 tile + c. Queries that don't exist attend nothing.
  constexpr uint64_t word(int64_t group, int64_t i, int64_t tile) const {
    return i < queries ? words[(group * queries + i) * row_words + tile] : 0;
  }

  constexpr bool attends(int64_t group, int64_t i, int64_t j) const {
    return word(group, i, j / kTile) >> (j % kTile) & 1;
  }
};

// For rungs that read no tables.
struct Pattern {
  Attends attends;
  PairBits bits{};  // on a GPU
};

// The order of positions in the tile tables that a rung reads.
enum class Slots {
  in_order,   // slot = position
  of_pattern  // as the pattern asks for: few tiles, whose rows are gathered
};

struct Rung {
  const char* name;   // "tables"
  const char* idea;   // what it adds to the rung before
  const char* files;  // below kernels/attention/, its own first, separated by spaces
  int tokens;         // of code in these files, without comments
  Slots slots;
  // null: the idea is about the other direction
  void (*forward)(Queue&, const AttentionForward&, const Pattern&);
  void (*backward)(Queue&, const AttentionBackward&, const Pattern&);
  bool same_bits = true;  // of every run; false: sums have no order
};

// From plain loops to attention.cpp.
std::span<const Rung> cpu_rungs();
// From one thread a query to hopper/. In builds without CUDA they can't be called.
std::span<const Rung> cuda_rungs();
// Those of a GPU of compute capability 80, 90, ...; 0: of the CPU.
std::span<const Rung> rungs_of(int compute_capability);

// What rungs of all devices take.
constexpr DType dtype_on(bool cuda) { return cuda ? DType::bf16 : DType::f32; }

inline constexpr int64_t kCudaHeadSize = 64;

// Error: x, an AttentionForward or AttentionBackward, is no problem for the rungs of a device.
template <class X>
void check_problem(const X& x, bool cuda) {
  check(x);
  const DType dtype = dtype_on(cuda);
  WEFT_CHECK(
      x.q.dtype == dtype && x.maps.passes == 1 && x.maps.pass[0].edge == kTile && !x.segments,
      "ladder: expected ", name_of(dtype), ", one pass over tiles of ", kTile,
      " and no documents, got ", name_of(x.q.dtype), ", ", x.maps.passes, " passes over tiles of ",
      x.maps.pass[0].edge, x.segments ? " and documents" : "");
  WEFT_CHECK(!cuda || (x.q.size == kCudaHeadSize && x.v.size == kCudaHeadSize),
             "ladder: on a GPU it takes heads of ", kCudaHeadSize, ", got ", x.q.size, " and ",
             x.v.size, "; the CPU takes any size");
}

// The tables of a head.
template <class X>
const TileMap& map_of(const X& x, int64_t b, int64_t h) {
  return x.maps.pass[0].maps[x.maps.map_of(b, h)];
}

// The mask word of row r of an entry of a tile list: bit c is set where (r, c) is attended.
constexpr uint64_t word_of(const uint64_t* masks, int64_t mask, int64_t r) {
  if (mask == kSkip) return 0;
  return mask < 0 ? ~uint64_t{0} : masks[mask * kTile + r];
}

// lse or delta of a head.
inline float* scalars_of(const TensorView& x, int64_t b, int64_t h) {
  return x.as<float>() + (b * x.shape[1] + h) * x.shape[2];
}

// Gradients are sums that begin with 0.
inline void clear(const HeadsView& x) {
  for (int64_t b = 0; b < x.batch; ++b)
    for (int64_t t = 0; t < x.time; ++t)
      for (int64_t h = 0; h < x.heads; ++h) std::fill_n(x.row<float>(b, t, h), x.size, 0.0f);
}
}  // namespace weft::ladder
