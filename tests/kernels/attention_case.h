// SPDX-License-Identifier: MIT
// What the attention tests of every backend share: patterns from a predicate, tables in host memory, random
// heads, and the definition: a dense softmax in f64.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <random>

#include "src/attention_maps.h"

namespace weft::attention_test {

// A pattern from lambdas; heads h and h + period have equal sets.
struct PredicatePattern : AttentionPattern {
  std::function<bool(int, std::int64_t, std::int64_t)> see;
  int period = 1;
  std::function<std::int64_t(std::int64_t)> query_order = [](std::int64_t i) { return i; },
                                            key_order = query_order;
  std::int64_t limit = 0;  // keys are asked for up to here: the n of the test

  PredicatePattern(std::int64_t n, std::function<bool(int, std::int64_t, std::int64_t)> f)
      : see(std::move(f)), limit(n) {}
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

struct HostMaps {
  std::vector<char> memory;
  AttentionMaps maps;

  HostMaps(const AttentionPattern& pattern, int heads, Lengths n, std::int64_t head_size = 64) {
    const PackedMaps packed(pattern, heads, n, head_size);
    memory.resize(packed.bytes() + 16);
    void* start = memory.data();
    std::size_t space = memory.size();
    start = std::align(16, packed.bytes(), start, space);
    maps = packed.write(start, start);
  }
};

struct Sizes {
  std::int64_t batch, time, heads, qk, v;
};

// Everything a forward and a backward pass read and write, (B, T, H, D) each, in f64 and rounded to T.
template <class T>
struct Data {
  using W = wide_t<T>;
  Sizes size;
  std::vector<T> q, k, v, y, dq, dk, dv, dy;
  std::vector<W> lse, delta;

  explicit Data(const Sizes& s, unsigned seed = 1) : size(s) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    const auto fill = [&](std::vector<T>& x, std::int64_t columns) {
      x.resize(static_cast<std::size_t>(s.batch * s.time * s.heads * columns));
      for (T& value : x) value = static_cast<T>(static_cast<W>(normal(random)));
    };
    fill(q, s.qk), fill(k, s.qk), fill(v, s.v), fill(dy, s.v);
    const W poison = std::numeric_limits<W>::quiet_NaN();
    y.assign(v.size(), static_cast<T>(poison)), dv = y;
    dq.assign(q.size(), static_cast<T>(poison)), dk = dq;
    lse.assign(static_cast<std::size_t>(s.batch * s.heads * s.time), poison), delta = lse;
  }
  // The same inputs in another type.
  template <class U>
  explicit Data(const Data<U>& other) : Data(other.size) {
    const auto copy = [](auto& to, const auto& from) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<T>(static_cast<W>(from[i]));
    };
    copy(q, other.q), copy(k, other.k), copy(v, other.v), copy(dy, other.dy);
  }

  HeadsView heads(std::vector<T>& x, std::int64_t columns) {
    const std::int64_t row = size.heads * columns;
    return {x.data(), dtype_of<T>, size.batch, size.time, size.heads, columns, size.time * row, row, columns};
  }
  TensorView rows(std::vector<W>& x) {
    return {x.data(), dtype_of<W>, 3, {size.batch, size.heads, size.time, 1, 1}};
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(size.qk)); }
  AttentionForward forward(const AttentionMaps& maps) {
    return {heads(y, size.v), rows(lse), heads(q, size.qk), heads(k, size.qk), heads(v, size.v), maps,
            scale()};
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
            scale()};
  }
};

// y and lse by definition: all pairs, the predicate, f64.
inline void dense_forward(const AttentionPattern& pattern, Data<double>& x) {
  const auto [batch, time, heads, qk, dv] = x.size;
  const auto at = [&, time = time, heads = heads](std::int64_t b, std::int64_t t, std::int64_t h,
                                                  std::int64_t columns) {
    return ((b * time + t) * heads + h) * columns;
  };
  std::vector<double> p(static_cast<std::size_t>(time));
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < time; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < time; ++j) {
          double s = 0;
          for (std::int64_t d = 0; d < qk; ++d) s += x.q[at(b, i, h, qk) + d] * x.k[at(b, j, h, qk) + d];
          p[j] = pattern.attends(static_cast<int>(h), i, j) ? std::exp(s * x.scale()) : 0;
          sum += p[j];
        }
        x.lse[(b * heads + h) * time + i] = std::log(sum);
        for (std::int64_t d = 0; d < dv; ++d) {
          double y = 0;
          for (std::int64_t j = 0; j < time; ++j) y += p[j] * x.v[at(b, j, h, dv) + d];
          x.y[at(b, i, h, dv) + d] = sum > 0 ? y / sum : 0;
        }
      }
}

// Largest |a - b|, relative to the largest |b| (or 1); infinite where one is NaN or infinite and the other
// not.
template <class A, class B>
double difference(const std::vector<A>& a, const std::vector<B>& b) {
  double worst = 0, top = 1;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    if (x == y) continue;
    const double gap = std::abs(x - y);
    worst = std::isfinite(gap) ? std::max(worst, gap) : std::numeric_limits<double>::infinity();
    top = std::max(top, std::abs(y));
  }
  return a.size() == b.size() ? worst / top : std::numeric_limits<double>::infinity();
}

// Masks of all sorts for sequences of length n: dense, banded, with empty rows and unseen keys, random, in
// orders with gaps, different from head to head.
struct NamedPattern {
  std::string name;
  std::unique_ptr<AttentionPattern> pattern;
};
inline std::vector<NamedPattern> sample_patterns(std::int64_t n, int heads) {
  std::vector<NamedPattern> list;
  const auto add = [&](const char* name, std::function<bool(int, std::int64_t, std::int64_t)> see) {
    auto pattern = std::make_unique<PredicatePattern>(n, std::move(see));
    PredicatePattern& added = *pattern;
    list.push_back({name, std::move(pattern)});
    return &added;
  };
  add("all", [](int, auto i, auto j) { return j <= i; });
  add("every pair", [](int, auto, auto) { return true; });
  add("nothing", [](int, auto, auto) { return false; });
  add("strictly earlier, even keys", [](int, auto i, auto j) { return j < i && j % 2 == 0; });
  add("window of 70", [](int, auto i, auto j) { return j <= i && i - j < 70; });
  add("random", [](int, auto i, auto j) { return (i * 7919 + j * 104729) % 101 < 5; })->key_order =
      [n](auto j) { return n - 1 - j; };
  PredicatePattern* gaps =
      add("by residue of 3, gapped", [](int, auto i, auto j) { return j <= i && (i - j) % 3 == 0; });
  gaps->query_order = [n](auto i) { return i % 3 * ((n / 3 + 64) / 64 * 64) + i / 3; };
  gaps->key_order = [n](auto i) { return (2 - i % 3) * (n / 3 + 5) + i / 3; };
  add("two groups", [](int head, auto i, auto j) {
    return head == 0 ? j <= i && i - j < 9 : j % 5 == 2;
  })->period = 2;
  for (const PatternSpec& spec : {PatternSpec{"fixed", 16, 4, 2}, PatternSpec{"strided", 16, 0, 1}})
    list.push_back({spec.kind, make_pattern(spec, heads)});
  return list;
}

}  // namespace weft::attention_test
