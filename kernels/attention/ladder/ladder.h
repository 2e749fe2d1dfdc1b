// SPDX-License-Identifier: MIT
// Attention as a ladder. Every rung computes the same y, lse, dQ, dK and dV, and adds one idea to
// the rung before it. The last rung is the real kernel. README.md tells the ladder; `bench ladder`
// checks the rungs and times them.
#pragma once

#include "kernels/attention/attention.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>

namespace weft::ladder {
// The pattern: whether query i of a head attends key j.
using Attends = std::function<bool(int64_t head, int64_t i, int64_t j)>;

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
  void (*forward)(const AttentionForward&, const Attends&);
  void (*backward)(const AttentionBackward&, const Attends&);
};

// From plain loops to attention.cpp.
std::span<const Rung> cpu_rungs();

// What all rungs rely on. Error: x, an AttentionForward or AttentionBackward, is something else.
template <class X>
void check_problem(const X& x) {
  check(x);
  WEFT_CHECK(
      x.q.dtype == DType::f32 && x.maps.passes == 1 && x.maps.pass[0].edge == kTile && !x.segments,
      "ladder: expected f32, one pass over tiles of ", kTile, " and no documents, got ",
      name_of(x.q.dtype), ", ", x.maps.passes, " passes over tiles of ", x.maps.pass[0].edge,
      x.segments ? " and documents" : "");
}

// The tables of a head.
template <class X>
const TileMap& map_of(const X& x, int64_t b, int64_t h) {
  return x.maps.pass[0].maps[x.maps.map_of(b, h)];
}

// The mask word of row r of an entry of a tile list: bit c is set where (r, c) is attended.
inline uint64_t word_of(const uint64_t* masks, int64_t mask, int64_t r) {
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
