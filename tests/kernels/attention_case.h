// SPDX-License-Identifier: MIT
// What the attention tests of every backend share: patterns from predicates, in one part and in several;
// tables in host memory with tiles of either edge; random heads; and the definition: all pairs, in f64.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <random>

#include "src/packed_maps.h"

namespace weft::attention_test {

using See = std::function<bool(int head, std::int64_t i, std::int64_t j)>;

// A pattern from lambdas; heads h and h + period have equal sets.
struct PredicatePattern : AttentionPattern {
  See see;
  int period = 1;
  std::function<std::int64_t(std::int64_t)> query_order = [](std::int64_t i) { return i; },
                                            key_order = query_order;
  std::int64_t limit = 0;  // keys are asked for up to here: how many there are in the test

  PredicatePattern(std::int64_t keys, See f) : see(std::move(f)), limit(keys) {}
  std::string name() const override { return "predicate"; }
  bool attends(int head, std::int64_t i, std::int64_t j) const override { return see(group(head), i, j); }
  void key_runs(int head, std::int64_t i, std::vector<KeyRun>& runs) const override {
    for (std::int64_t j = 0; j < limit; ++j)
      if (attends(head, i, j)) runs.push_back({j, j + 1, 1});
  }
  int groups(int heads) const override { return std::min(heads, period); }
  int group(int head) const override { return head % period; }
  std::int64_t query_slot(int, std::int64_t i, std::int64_t) const override { return query_order(i); }
  std::int64_t key_slot(int, std::int64_t j, std::int64_t) const override { return key_order(j); }
};

// The union of patterns that share no pair, each a part with an order of its own. A part may be one of the
// heads h with h % period == of only.
struct PartsPattern : AttentionPattern {
  struct Part {
    std::unique_ptr<AttentionPattern> pattern;
    int of = -1;  // -1: of every head
  };
  std::vector<Part> list;
  int period = 1;

  template <class F>
  void for_each_part(int head, F&& f) const {
    for (const Part& part : list)
      if (part.of < 0 || part.of == group(head)) f(*part.pattern);
  }
  std::string name() const override { return "parts"; }
  bool attends(int head, std::int64_t i, std::int64_t j) const override {
    bool any = false;
    for_each_part(head, [&](const AttentionPattern& part) { any = any || part.attends(head, i, j); });
    return any;
  }
  void key_runs(int head, std::int64_t i, std::vector<KeyRun>& runs) const override {
    for_each_part(head, [&](const AttentionPattern& part) { part.key_runs(head, i, runs); });
  }
  int groups(int heads) const override { return std::min(heads, period); }
  int group(int head) const override { return head % period; }
  void parts(int head, std::vector<PatternPart>& parts) const override {
    for_each_part(head, [&](const AttentionPattern& part) { parts.push_back({&part, head}); });
  }
};

// kBest: the edge that suits each part.
inline constexpr int kBest = 0;

struct HostMaps {
  std::vector<char> memory;
  AttentionMaps maps;

  HostMaps(const AttentionPattern& pattern, int heads, Lengths n, std::int64_t head_size = 64,
           int edge = kBest) {
    const PackedMaps packed(pattern, heads, n, head_size, edge);
    memory.resize(packed.bytes() + 16);
    void* start = memory.data();
    std::size_t space = memory.size();
    start = std::align(16, packed.bytes(), start, space);
    maps = packed.write(start, start);
  }
};

struct Sizes {
  std::int64_t batch, time, heads, qk, v;
  std::int64_t keys = 0;  // 0: as many as queries
  Lengths lengths() const { return {time, keys ? keys : time}; }
};

// Everything a forward and a backward pass read and write, (B, T, H, D) each, random and rounded to T.
template <class T>
struct Data {
  using W = wide_t<T>;
  Sizes size;
  std::vector<T> q, k, v, y, dq, dk, dv, dy;
  std::vector<W> lse, delta;
  std::vector<std::int32_t> query_segments, key_segments;  // (B, T), (B, Tk); empty: none
  AttentionForm form = AttentionForm::automatic;

  explicit Data(const Sizes& s, unsigned seed = 1) : size(s) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    const auto fill = [&](std::vector<T>& x, std::int64_t time, std::int64_t columns) {
      x.resize(static_cast<std::size_t>(s.batch * time * s.heads * columns));
      for (T& value : x) value = static_cast<T>(static_cast<W>(normal(random)));
    };
    const auto [queries, keys] = s.lengths();
    fill(q, queries, s.qk), fill(k, keys, s.qk), fill(v, keys, s.v), fill(dy, queries, s.v);
    const W poison = std::numeric_limits<W>::quiet_NaN();
    const auto poisoned = [&](const std::vector<T>& x) {
      return std::vector<T>(x.size(), static_cast<T>(poison));
    };
    y = poisoned(dy), dq = poisoned(q), dk = poisoned(k), dv = poisoned(v);
    lse.assign(static_cast<std::size_t>(s.batch * s.heads * s.time), poison), delta = lse;
  }
  // The same inputs in another type.
  template <class U>
  explicit Data(const Data<U>& other) : Data(other.size) {
    const auto copy = [](auto& to, const auto& from) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<T>(static_cast<W>(from[i]));
    };
    copy(q, other.q), copy(k, other.k), copy(v, other.v), copy(dy, other.dy);
    query_segments = other.query_segments, key_segments = other.key_segments;
  }

  // Segments: documents of random lengths, some of them padding (negative). In self-attention keys have those
  // of their queries.
  void pack_documents(unsigned seed = 1) {
    std::mt19937 random(seed);
    const auto documents = [&](std::int64_t n) {
      std::vector<std::int32_t> numbers;
      for (std::int64_t b = 0; b < size.batch; ++b)
        for (std::int64_t t = 0, document = 0; t < n; ++document)
          for (std::int64_t end = std::min<std::int64_t>(n, t + 1 + random() % (n / 3 + 1)); t < end; ++t)
            numbers.push_back(document % 4 == 2 ? -1 - (t & 1) : static_cast<std::int32_t>(document % 4));
      return numbers;
    };
    query_segments = documents(size.time);
    key_segments = size.keys ? documents(size.keys) : query_segments;
  }
  bool same_segment(std::int64_t b, std::int64_t i, std::int64_t j) const {
    if (query_segments.empty()) return true;
    const std::int32_t of_query = query_segments[b * size.time + i];
    return of_query >= 0 && of_query == key_segments[b * size.lengths().keys + j];
  }

  HeadsView heads(std::vector<T>& x, std::int64_t columns) {
    const std::int64_t row = size.heads * columns,
                       time = static_cast<std::int64_t>(x.size()) / (size.batch * row);
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
    return {heads(dq, size.qk),
            heads(dk, size.qk),
            heads(dv, size.v),
            rows(delta),
            heads(dy, size.v),
            heads(y, size.v),
            rows(lse),
            heads(q, size.qk),
            heads(k, size.qk),
            heads(v, size.v),
            maps,
            scale(),
            segments(),
            form};
  }
};

inline double inner(const double* a, const double* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t d = 0; d < n; ++d) sum += a[d] * b[d];
  return sum;
}

// y and lse by definition: all pairs, the predicate, f64.
inline void dense_forward(const AttentionPattern& pattern, Data<double>& x) {
  const AttentionForward f = x.forward({});
  const auto [queries, keys] = x.size.lengths();
  std::vector<double> p(static_cast<std::size_t>(keys));
  for (std::int64_t b = 0; b < x.size.batch; ++b)
    for (std::int64_t h = 0; h < x.size.heads; ++h)
      for (std::int64_t i = 0; i < queries; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < keys; ++j) {
          const bool seen = pattern.attends(static_cast<int>(h), i, j) && x.same_segment(b, i, j);
          const auto s = [&] { return inner(f.q.row<double>(b, i, h), f.k.row<double>(b, j, h), x.size.qk); };
          sum += p[j] = seen ? std::exp(s() * f.scale) : 0;
        }
        x.lse[(b * x.size.heads + h) * queries + i] = std::log(sum);
        double* y = f.y.row<double>(b, i, h);
        std::fill(y, y + x.size.v, 0.0);
        for (std::int64_t j = 0; j < keys; ++j)
          for (std::int64_t d = 0; d < x.size.v && p[j] != 0; ++d)
            y[d] += p[j] / sum * f.v.row<double>(b, j, h)[d];
      }
}

// dq, dk and dv by definition, from dense_forward()'s y and lse:
//   p_ij = exp(scale * q_i . k_j - lse_i), ds_ij = p_ij (dy_i . v_j - dy_i . y_i),
//   dq_i = scale * sum_j ds_ij k_j, dk_j = scale * sum_i ds_ij q_i, dv_j = sum_i p_ij dy_i.
inline void dense_backward(const AttentionPattern& pattern, Data<double>& x) {
  const AttentionBackward g = x.backward({});
  const auto [queries, keys] = x.size.lengths();
  const std::int64_t qk = x.size.qk, width = x.size.v;
  for (auto* gradient : {&x.dq, &x.dk, &x.dv}) std::fill(gradient->begin(), gradient->end(), 0.0);
  for (std::int64_t b = 0; b < x.size.batch; ++b)
    for (std::int64_t h = 0; h < x.size.heads; ++h)
      for (std::int64_t i = 0; i < queries; ++i) {
        const double *q = g.q.row<double>(b, i, h), *dy = g.dy.row<double>(b, i, h);
        const double lse = x.lse[(b * x.size.heads + h) * queries + i];
        const double delta = inner(dy, g.y.row<double>(b, i, h), width);
        for (std::int64_t j = 0; j < keys; ++j) {
          if (!pattern.attends(static_cast<int>(h), i, j) || !x.same_segment(b, i, j)) continue;
          const double *k = g.k.row<double>(b, j, h), *v = g.v.row<double>(b, j, h);
          const double p = std::exp(g.scale * inner(q, k, qk) - lse);
          const double ds = g.scale * p * (inner(dy, v, width) - delta);
          for (std::int64_t d = 0; d < qk; ++d) g.dq.row<double>(b, i, h)[d] += ds * k[d];
          for (std::int64_t d = 0; d < qk; ++d) g.dk.row<double>(b, j, h)[d] += ds * q[d];
          for (std::int64_t d = 0; d < width; ++d) g.dv.row<double>(b, j, h)[d] += p * dy[d];
        }
      }
}

// Largest |a - b|, relative to the largest |b| (or 1); infinite where one is NaN or infinite and the other
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

struct NamedPattern {
  std::string name;
  std::unique_ptr<AttentionPattern> pattern;
};
// Sets of all sorts for n.queries and n.keys: dense, banded, with empty rows and unseen keys, random, in
// orders with gaps, different from head to head, in one part and in several.
std::vector<NamedPattern> sample_patterns(Lengths n, int heads);

}  // namespace weft::attention_test
