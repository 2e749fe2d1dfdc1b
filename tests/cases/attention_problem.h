// SPDX-License-Identifier: MIT
// The oracle of `selftest` and the tests: attention by definition, random problems, tables in host
// memory.
#pragma once

#include "src/attention_maps.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

namespace weft::attention_oracle {
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

template <class T>
wide_t<T> inner(const T* a, const T* b, int64_t n) {
  wide_t<T> sum = 0;
  for (int64_t d = 0; d < n; ++d)
    sum += static_cast<wide_t<T>>(a[d]) * static_cast<wide_t<T>>(b[d]);
  return sum;
}

// y and lse by definition, over all pairs. In f64 they are the reference; in another type, with
// sums in wide(T), their error is the measure of the kernels'.
template <class T>
void dense_forward(const AttentionPattern& pattern, Data<T>& x) {
  using W = wide_t<T>;
  const AttentionForward f = x.forward({});
  const auto [queries, keys] = x.size.lengths();
  const int64_t width = x.size.v;
  std::vector<W> p(keys), y(static_cast<std::size_t>(width));
  for (int64_t b = 0; b < x.size.batch; ++b)
    for (int64_t h = 0; h < x.size.heads; ++h)
      for (int64_t i = 0; i < queries; ++i) {
        W top = -std::numeric_limits<W>::infinity(), sum = 0;
        for (int64_t j = 0; j < keys; ++j) {
          const bool seen = pattern.attends(static_cast<int>(h), i, j) && x.same_segment(b, i, j);
          p[j] = seen ? static_cast<W>(f.scale) *
                            inner(f.q.row<T>(b, i, h), f.k.row<T>(b, j, h), x.size.qk)
                      : -std::numeric_limits<W>::infinity();
          top = std::max(top, p[j]);
        }
        for (W& s : p) sum += s = std::isinf(s) ? 0 : std::exp(s - top);
        x.lse[(b * x.size.heads + h) * queries + i] = sum > 0 ? top + std::log(sum) : top;
        std::ranges::fill(y, W{0});
        for (int64_t j = 0; j < keys; ++j)
          for (int64_t d = 0; d < width && p[j] != 0; ++d)
            y[d] += p[j] / sum * static_cast<W>(f.v.row<T>(b, j, h)[d]);
        for (int64_t d = 0; d < width; ++d) f.y.row<T>(b, i, h)[d] = static_cast<T>(y[d]);
      }
}

// dq, dk and dv by definition, from dense_forward()'s y and lse:
//   p_ij = exp(scale * q_i . k_j - lse_i), ds_ij = p_ij (dy_i . v_j - dy_i . y_i),
//   dq_i = scale * sum_j ds_ij k_j, dk_j = scale * sum_i ds_ij q_i, dv_j = sum_i p_ij dy_i.
template <class T>
void dense_backward(const AttentionPattern& pattern, Data<T>& x) {
  using W = wide_t<T>;
  const AttentionBackward g = x.backward({});
  const auto [queries, keys] = x.size.lengths();
  const int64_t qk = x.size.qk, width = x.size.v;
  std::vector<W> dq(x.dq.size()), dk(x.dk.size()), dv(x.dv.size());
  const auto add = [](W* sum, W factor, const T* row, int64_t n) {
    for (int64_t d = 0; d < n; ++d) sum[d] += factor * static_cast<W>(row[d]);
  };
  for (int64_t b = 0; b < x.size.batch; ++b)
    for (int64_t h = 0; h < x.size.heads; ++h)
      for (int64_t i = 0; i < queries; ++i) {
        const T *q = g.q.row<T>(b, i, h), *dy = g.dy.row<T>(b, i, h);
        const W lse = x.lse[(b * x.size.heads + h) * queries + i];
        const W delta = inner(dy, g.y.row<T>(b, i, h), width);
        for (int64_t j = 0; j < keys; ++j) {
          if (!pattern.attends(static_cast<int>(h), i, j) || !x.same_segment(b, i, j)) continue;
          const T *k = g.k.row<T>(b, j, h), *v = g.v.row<T>(b, j, h);
          const W scale = static_cast<W>(g.scale), p = std::exp(scale * inner(q, k, qk) - lse);
          const W ds = scale * p * (inner(dy, v, width) - delta);
          add(&dq[q - x.q.data()], ds, k, qk);
          add(&dk[k - x.k.data()], ds, q, qk);
          add(&dv[v - x.v.data()], p, dy, width);
        }
      }
  const auto round = [](const std::vector<W>& from, std::vector<T>& to) {
    std::ranges::transform(from, to.begin(), [](W value) { return static_cast<T>(value); });
  };
  round(dq, x.dq), round(dk, x.dk), round(dv, x.dv);
}

// Largest |a - b| over the largest |b| (or 1); infinite where one is NaN or infinite and the other
// not.
template <class A, class B>
double difference(const std::vector<A>& a, const std::vector<B>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0, top = 1;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    if (x == y) continue;
    const double gap = std::abs(x - y);
    worst = std::isfinite(gap) ? std::max(worst, gap) : std::numeric_limits<double>::infinity();
    top = std::max(top, std::abs(y));
  }
  return worst / top;
}
}  // namespace weft::attention_oracle
