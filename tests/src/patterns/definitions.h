// SPDX-License-Identifier: MIT
// Every pattern and modifier defined a second time, pair by pair, from nothing but the spec: the
// witness against which attends() is held. No code is shared with src/patterns/ but the spec and
// Philox. Slow and plain on purpose. `layout` has its own definition in layout_test.cpp.
#pragma once

#include "kernels/philox.h"
#include "src/patterns/spec.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

namespace weft::definition {
using Int = int64_t;

template <class T, class X>
bool contains(const std::vector<T>& list, const X& x) {
  return std::find(list.begin(), list.end(), x) != list.end();
}

// arXiv 1904.10509, section 4.3. Positions of a block count from 0; `c` summaries of sub-block
// `verts` from the end.
inline bool is_summary(const PatternSpec& s, int head, Int j) {
  const Int c = s.block > 0 ? s.vertsize * s.block : s.c;
  Int from_end = 0;  // of j: positions up to and with the end of its block
  for (Int t = j; t / s.stride == j / s.stride; ++t) ++from_end;
  const Int sub_block = (from_end - 1) / c;
  return sub_block == head % s.num_verts;
}

// arXiv 2004.05150, section 3.1.
inline bool longformer(const PatternSpec& s, int head, Int i, Int j) {
  if (contains(s.globals, i) || contains(s.globals, j)) return true;
  const Int d = s.dilation[static_cast<std::size_t>(head) % s.dilation.size()];
  for (Int k = 0; k < (s.causal ? s.window : s.window / 2 + 1); ++k)
    if (i - k * d == j || (!s.causal && i + k * d == j)) return true;
  return false;
}

// arXiv 2007.14062, section 2, without the random blocks. I and J are blocks.
inline bool bigbird_always(const PatternSpec& s, Int I, Int J) {
  if (contains(s.globals, I) || contains(s.globals, J)) return true;
  return s.causal ? J <= I && I < J + s.window : std::abs(I - J) <= s.window / 2;
}

// Floyd's sampling without replacement from the blocks that I does not see otherwise, ascending.
inline bool bigbird_random(const PatternSpec& s, int head, Int I, Int J) {
  std::vector<Int> others, drawn;
  const Int blocks = s.causal ? I : (s.length + s.block - 1) / s.block;
  for (Int B = 0; B < blocks; ++B)
    if (!bigbird_always(s, I, B)) others.push_back(B);
  const auto size = static_cast<Int>(others.size());
  for (Int k = 0, t = size - std::min(s.random, size); t < size; ++k, ++t) {
    const Philox4 bits = philox4x32(
        {static_cast<uint32_t>(I), static_cast<uint32_t>(head), static_cast<uint32_t>(k), 0},
        s.seed);
    const uint64_t word = uint64_t{bits[1]} << 32 | bits[0];
    const auto u =
        static_cast<Int>(static_cast<unsigned __int128>(word) * static_cast<uint64_t>(t + 1) >> 64);
    drawn.push_back(contains(drawn, u) ? t : u);
  }
  for (const Int place : drawn)
    if (others[static_cast<std::size_t>(place)] == J) return true;
  return false;
}

// Padding on the left: the smallest with which the filter has n / step places.
inline Int padding(Int n, Int filter, Int step) {
  for (Int pad = 0; pad <= filter; ++pad) {
    Int places = 0;
    for (Int first = -pad; first + filter <= n + pad; first += step) ++places;
    if (places == n / step) return pad;
  }
  ADD_FAILURE() << "no padding for " << n << ", " << filter << ", " << step;
  return 0;
}

// Whether tap t of the filter at `output` lies on `input`, for any t, along one axis.
inline bool meets(Int n, Int filter, Int step, Int output, Int input) {
  const Int first = output * step - padding(n, filter, step);
  for (Int tap = 0; tap < filter; ++tap)
    if (first + tap == input) return true;
  return false;
}

inline bool convolution(const PatternSpec& s, Int i, Int j) {
  const bool flat = s.grid.size() == 1 || s.grid[0] == 1;
  const Int W = s.grid.back(), H = flat ? 1 : s.grid[0], Q = W / s.step, P = flat ? 1 : H / s.step;
  const Int output = s.transposed ? j : i, input = s.transposed ? i : j;
  if (output >= P * Q || input >= H * W) return false;
  const Int p = output / Q, q = output % Q, h = input / W, w = input % W;
  if (!meets(W, s.filter.back(), s.step, q, w)) return false;
  if (!flat && !meets(H, s.filter[0], s.step, p, h)) return false;
  const Int below = p * s.step * W + q * s.step;  // the input on which the output stands
  return !s.causal || (s.transposed ? below <= input : input <= below);
}

inline bool sees(const PatternSpec& s, int head, Int i, Int j);

inline bool sees_unmodified(const PatternSpec& s, int head, Int i, Int j) {
  if (s.kind == "merged")
    return std::any_of(s.of.begin(), s.of.end(),
                       [&](const PatternSpec& p) { return sees(p, head, i, j); });
  if (s.kind == "heads") {
    const auto size = static_cast<int>(s.of.size());
    return sees(s.of[static_cast<std::size_t>(head % size)], head / size, i, j);
  }
  if (s.kind == "convolution") return convolution(s, i, j);
  if (s.kind == "local" && !s.causal) return std::abs(i - j) < s.stride;
  if (j > i && (s.causal || !contains(fields_read(s), "causal"))) return false;
  if (s.kind == "all") return true;
  if (s.kind == "local") return i - j < s.stride;
  if (s.kind == "strided") return i % s.stride == j % s.stride;
  if (s.kind == "block") return i / s.stride == j / s.stride;
  if (s.kind == "summary") return is_summary(s, head, j);
  if (s.kind == "fixed") return i / s.stride == j / s.stride || is_summary(s, head, j);
  if (s.kind == "longformer") return longformer(s, head, i, j);
  if (s.kind == "bigbird") {
    if (!s.causal && (i >= s.length || j >= s.length)) return false;
    const Int I = i / s.block, J = j / s.block;
    return bigbird_always(s, I, J) || bigbird_random(s, head, I, J);
  }
  ADD_FAILURE() << "tests/src/patterns/definitions.h has no definition of " << s.kind;
  return false;
}

// Does query i see key j?
inline bool sees(const PatternSpec& s, int head, Int i, Int j) {
  if (s.length > 0 && (i >= s.length || j >= s.length)) return false;
  if (s.prefix > 0 && j >= s.prefix && j > i) return false;
  const auto document = [&](Int t) {
    return std::count_if(s.documents.begin(), s.documents.end(),
                         [t](Int first) { return first <= t; });
  };
  return document(i) == document(j) && sees_unmodified(s, head, i, j);
}
}  // namespace weft::definition
