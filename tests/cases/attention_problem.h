// SPDX-License-Identifier: MIT
// Random problems of attention, their results by definition, tables in host memory.
#pragma once

#include "kernels/sampling/decode_attention.h"
#include "src/attention_maps.h"
#include "tests/cases/compare.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

namespace weft::attention_test {
// kBest: the edge that suits each part.
inline constexpr int kBest = 0;

struct HostMaps {
  std::vector<char> memory;
  AttentionMaps maps;

  HostMaps(const AttentionPattern& pattern, int heads, Lengths n, int64_t head_size = 64,
           int edge = kBest) {
    const PackedMaps packed(pattern, heads, n, head_size, edge);
    memory.resize(packed.bytes());
    maps = packed.write(memory.data(), memory.data());
  }
};

struct Sizes {
  int64_t batch, time, heads, qk, v;
  int64_t keys = 0;  // 0: as many as queries

  Lengths lengths() const { return {time, keys ? keys : time}; }
};

// Everything a forward and a backward pass read and write, (B, T, H, D) each, random and rounded to
// T.
template <class T>
struct Data {
  using W = wide_t<T>;
  Sizes size;
  std::vector<T> q, k, v, y, dq, dk, dv, dy;
  std::vector<W> lse, delta;
  std::vector<int32_t> query_segments, key_segments;  // (B, T), (B, Tk); empty: none
  AttentionForm form = AttentionForm::automatic;

  explicit Data(const Sizes& s, unsigned seed = 1)
      : size(s) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    const auto fill = [&](std::vector<T>& x, int64_t time, int64_t columns) {
      x.resize(s.batch * time * s.heads * columns);
      for (T& value : x) value = static_cast<T>(static_cast<W>(normal(random)));
    };
    const auto [queries, keys] = s.lengths();
    fill(q, queries, s.qk), fill(k, keys, s.qk), fill(v, keys, s.v), fill(dy, queries, s.v);
    const W poison = std::numeric_limits<W>::quiet_NaN();
    const auto poisoned = [&](const std::vector<T>& x) {
      return std::vector<T>(x.size(), static_cast<T>(poison));
    };
    y = poisoned(dy), dq = poisoned(q), dk = poisoned(k), dv = poisoned(v);
    lse.assign(s.batch * s.heads * s.time, poison), delta = lse;
  }

  // The same inputs in another type.
  template <class U>
  explicit Data(const Data<U>& other)
      : Data(other.size) {
    const auto copy = [](auto& to, const auto& from) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<T>(static_cast<W>(from[i]));
    };
    copy(q, other.q), copy(k, other.k), copy(v, other.v), copy(dy, other.dy);
    query_segments = other.query_segments, key_segments = other.key_segments;
  }

  // Documents of random lengths, some of them padding (negative); in self-attention keys have their
  // queries'.
  void pack_documents(unsigned seed = 1) {
    std::mt19937 random(seed);
    const auto documents = [&](int64_t n) {
      std::vector<int32_t> numbers;
      for (int64_t b = 0; b < size.batch; ++b)
        for (int64_t t = 0, document = 0; t < n; ++document)
          for (int64_t end = std::min<int64_t>(n, t + 1 + random() % (n / 3 + 1)); t < end; ++t)
            numbers.push_back(document % 4 == 2 ? -1 - (t & 1)
                                                : static_cast<int32_t>(document % 4));
      return numbers;
    };
    query_segments = documents(size.time);
    key_segments = size.keys ? documents(size.keys) : query_segments;
  }

  // Whether they are starts of documents, as DocumentStarts gives them.
  bool segments_are_starts() const {
    for (std::size_t i = 0; i < query_segments.size(); ++i) {
      const auto t = static_cast<int32_t>(static_cast<int64_t>(i) % size.time);
      if (query_segments[i] != t && (t == 0 || query_segments[i] != query_segments[i - 1]))
        return false;
    }
    return !query_segments.empty();
  }

  bool same_segment(int64_t b, int64_t i, int64_t j) const {
    if (query_segments.empty()) return true;
    const int32_t of_query = query_segments[b * size.time + i];
    return of_query >= 0 && of_query == key_segments[b * size.lengths().keys + j];
  }

  HeadsView heads(std::vector<T>& x, int64_t columns) {
    const int64_t row = size.heads * columns, time = std::ssize(x) / (size.batch * row);
    return {x.data(), dtype_of<T>, size.batch, time, size.heads, columns, time * row, row, columns};
  }

  TensorView rows(std::vector<W>& x) {
    return {x.data(), dtype_of<W>, 3, {size.batch, size.heads, size.time, 1, 1}};
  }

  Segments segments() {
    if (query_segments.empty()) return {};
    const auto [queries, keys] = size.lengths();
    return {{query_segments.data(), DType::i32, 2, {size.batch, queries, 1, 1, 1}},
            {key_segments.data(), DType::i32, 2, {size.batch, keys, 1, 1, 1}}};
  }

  double scale() const { return 1 / std::sqrt(static_cast<double>(size.qk)); }

  AttentionForward forward(const AttentionMaps& maps) {
    return {heads(y, size.v),  rows(lse),        heads(q, size.qk),
            heads(k, size.qk), heads(v, size.v), maps,
            scale(),           segments(),       form};
  }

  AttentionBackward backward(const AttentionMaps& maps) {
    return backward_of(forward(maps), heads(dq, size.qk), heads(dk, size.qk), heads(dv, size.v),
                       rows(delta), heads(dy, size.v));
  }
};

// What the kernel computes, by kernels/attention/definition.h: in f64, for tensors in host memory,
// to whose types results are rounded. Tile maps are not read: the pattern says who attends whom.
void by_definition(const AttentionForward&, const AttentionPattern&);
void by_definition(const AttentionBackward&, const AttentionPattern&);
// The position's own key and value are stored as the CPU form does.
void by_definition(const AttentionDecode&);
}  // namespace weft::attention_test
