// SPDX-License-Identifier: MIT
// Sparse attention on the CPU: results against the definition, gradients against central
// differences.
#include "kernels/sampling/decode_attention.h"
#include "tests/kernels/attention/attention_case.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

namespace weft {
namespace {
using namespace attention_test;

CpuQueue queue;

// Ways to run one length: the edge of the tiles, the number of keys (0: as many as queries), and
// documents.
struct Way {
  int edge;
  int64_t keys;
  bool documents;
};

std::vector<Way> ways(int64_t n) {
  return {{kTile, 0, false},        {kSmallTile, 0, false},      {kBest, 0, true},
          {kTile, 0, true},         {kSmallTile, n + 21, false}, {kTile, n / 2 + 1, true},
          {kSmallTile, n + 5, true}};
}

// Calls f(x, exact, maps, pattern) for all patterns and ways: x holds results of the kernel in T,
// `exact` those of the definition for the same inputs.
template <class T, class F>
void for_all_cases(int64_t n, Sizes size, F&& f) {
  for (const Way& way : ways(n)) {
    size.time = n, size.keys = way.keys;
    for (const auto& [name, pattern] :
         sample_patterns(size.lengths(), static_cast<int>(size.heads))) {
      SCOPED_TRACE(str(name, ", ", name_of(dtype_of<T>), ", n ", n, ", keys ", size.lengths().keys,
                       ", edge ", way.edge, way.documents ? ", documents" : ""));
      Data<T> x(size);
      if (way.documents) x.pack_documents();
      Data<double> exact(x);
      const HostMaps maps(*pattern, static_cast<int>(size.heads), size.lengths(), 64, way.edge);
      run(queue, x.forward(maps.maps));
      run(queue, x.backward(maps.maps));
      by_definition(exact.forward({}), *pattern);
      by_definition(exact.backward({}), *pattern);
      f(x, exact, maps.maps);
    }
  }
}

template <class T>
void expect_the_definition(int64_t n, const Sizes& size, double tolerance, double lse_tolerance) {
  for_all_cases<T>(n, size, [&](Data<T>& x, Data<double>& exact, const AttentionMaps&) {
    EXPECT_LT(difference(x.y, exact.y), tolerance) << "y";
    EXPECT_LT(difference(x.lse, exact.lse), lse_tolerance) << "lse";
    EXPECT_LT(difference(x.dq, exact.dq), tolerance) << "dq";
    EXPECT_LT(difference(x.dk, exact.dk), tolerance) << "dk";
    EXPECT_LT(difference(x.dv, exact.dv), tolerance) << "dv";
  });
}

class AttentionLength : public testing::TestWithParam<int64_t> {};

INSTANTIATE_TEST_SUITE_P(Attention, AttentionLength,
                         testing::Values(1, 15, 16, 17, 63, 64, 65, 100));

TEST_P(AttentionLength, Float64IsTheDefinition) {
  expect_the_definition<double>(GetParam(), {2, 0, 2, 5, 7}, 1e-12, 1e-12);
}

TEST_P(AttentionLength, Float32IsTheDefinition) {
  expect_the_definition<float>(GetParam(), {1, 0, 2, 24, 16}, 3e-6, 3e-6);
}

// Results are rounded to 11 and 8 bits, y once more for each part that goes on from it.
TEST_P(AttentionLength, Float16IsTheDefinition) {
  expect_the_definition<f16>(GetParam(), {1, 0, 2, 8, 16}, 2e-3, 1e-5);
}

TEST_P(AttentionLength, BFloat16IsTheDefinition) {
  expect_the_definition<bf16>(GetParam(), {1, 0, 2, 16, 8}, 2e-2, 1e-5);
}

// The objective sum(dy * y) as a function of about 15 elements of one input, by central
// differences.
double worst_gradient(Data<double>& x, const AttentionMaps& maps, std::vector<double>& input,
                      const std::vector<double>& gradient) {
  const auto objective = [&] {
    run(queue, x.forward(maps));
    double sum = 0;
    for (std::size_t i = 0; i < x.y.size(); ++i) sum += x.dy[i] * x.y[i];
    return sum;
  };
  std::size_t step = input.size() / 15 | 1;
  if (step % 3 == 0) step += 2;  // so that every column takes its turn: heads have 3 and 4 of them
  double worst = 0;
  for (std::size_t i = 0; i < input.size(); i += step) {
    const double kept = input[i], h = 1e-5;
    input[i] = kept + h;
    const double above = objective();
    input[i] = kept - h;
    const double below = objective();
    input[i] = kept;
    const double gap = std::abs((above - below) / (2 * h) - gradient[i]);
    worst = std::isnan(gap) ? gap : std::max(worst, gap);
  }
  return worst;
}

TEST(Attention, BackwardIsTheGradient) {
  for (const int64_t n : {1, 5, 17, 65})
    for_all_cases<double>(n, {1, n, 2, 3, 4},
                          [](Data<double>& x, auto&, const AttentionMaps& maps) {
                            EXPECT_LT(worst_gradient(x, maps, x.q, x.dq), 1e-6) << "dq";
                            EXPECT_LT(worst_gradient(x, maps, x.k, x.dk), 1e-6) << "dk";
                            EXPECT_LT(worst_gradient(x, maps, x.v, x.dv), 1e-6) << "dv";
                          });
}

TEST(Attention, EmptyRowsAndUnseenKeysAreWritten) {
  const int64_t n = 66;
  const PredicatePattern pattern(n, [](int, auto i, auto j) { return i % 2 == 1 && j % 3 == 0; });
  const HostMaps maps(pattern, 1, n);
  Data<float> x({1, n, 1, 4, 4});
  run(queue, x.forward(maps.maps));
  run(queue, x.backward(maps.maps));
  for (int64_t t = 0; t < n; ++t) {
    EXPECT_EQ(std::isinf(x.lse[t]) && x.lse[t] < 0, t % 2 == 0) << t;
    for (int64_t d = 0; d < 4; ++d) {
      EXPECT_EQ(x.y[t * 4 + d] == 0 && x.dq[t * 4 + d] == 0, t % 2 == 0) << t;
      EXPECT_EQ(x.dk[t * 4 + d] == 0 && x.dv[t * 4 + d] == 0, t % 3 != 0) << t;
    }
  }
}

// A document is attended as if it were alone.
TEST(Attention, DocumentsDoNotSeeEachOther) {
  const int64_t n = 90, heads = 2, d = 4, first = 37, length = 41;
  const auto causal = [](int, auto i, auto j) { return j <= i; };
  const PredicatePattern together(n, causal), alone(length, causal);
  const HostMaps maps(together, heads, n), maps_alone(alone, heads, length);
  Data<double> x({1, n, heads, d, d}), part({1, length, heads, d, d});
  for (int64_t t = 0; t < n; ++t)
    x.query_segments.push_back(t < first ? 5 : t < first + length ? 0 : -1);
  x.key_segments = x.query_segments;
  const auto slice = [&](const std::vector<double>& whole) {
    const auto begin = whole.begin() + first * heads * d;
    return std::vector<double>(begin, begin + length * heads * d);
  };
  part.q = slice(x.q), part.k = slice(x.k), part.v = slice(x.v), part.dy = slice(x.dy);
  run(queue, x.forward(maps.maps));
  run(queue, x.backward(maps.maps));
  run(queue, part.forward(maps_alone.maps));
  run(queue, part.backward(maps_alone.maps));
  EXPECT_LT(difference(slice(x.y), part.y), 1e-14);
  EXPECT_LT(difference(slice(x.dq), part.dq), 1e-14);
  EXPECT_LT(difference(slice(x.dk), part.dk), 1e-14);
  EXPECT_LT(difference(slice(x.dv), part.dv), 1e-14);
  EXPECT_EQ(x.lse[n - 1], -std::numeric_limits<double>::infinity());  // padding sees nothing
  for (const auto* padded : {&x.y, &x.dq, &x.dk, &x.dv}) EXPECT_EQ(padded->back(), 0);
}

TEST(Attention, HeadsAreReadInPlaceFromAPackedProjection) {
  const int64_t batch = 2, n = 70, heads = 3, d = 8, columns = 3 * heads * d;
  const PredicatePattern pattern(n, [](int, auto i, auto j) { return j <= i; });
  const HostMaps maps(pattern, heads, n);
  Data<float> x({batch, n, heads, d, d});
  std::vector<float> packed(batch * n * columns), gradient(packed.size(), NAN);
  for (int64_t row = 0; row < batch * n; ++row)
    for (int64_t c = 0; c < heads * d; ++c) {
      packed[row * columns + c] = x.q[row * heads * d + c];
      packed[row * columns + heads * d + c] = x.k[row * heads * d + c];
      packed[row * columns + 2 * heads * d + c] = x.v[row * heads * d + c];
    }
  AttentionForward f = x.forward(maps.maps);
  run(queue, f);
  const std::vector<float> y = x.y;
  run(queue, x.backward(maps.maps));
  const TensorView in{packed.data(), DType::f32, 3, {batch, n, columns, 1, 1}};
  const TensorView out{gradient.data(), DType::f32, 3, {batch, n, columns, 1, 1}};
  AttentionBackward g = x.backward(maps.maps);
  f.q = g.q = heads_of(in, 0, heads, d);
  f.k = g.k = heads_of(in, heads * d, heads, d);
  f.v = g.v = heads_of(in, 2 * heads * d, heads, d);
  g.dq = heads_of(out, 0, heads, d);
  g.dk = heads_of(out, heads * d, heads, d);
  g.dv = heads_of(out, 2 * heads * d, heads, d);
  run(queue, f);
  EXPECT_EQ(x.y, y);
  run(queue, g);
  for (int64_t row = 0; row < batch * n; ++row)
    for (int64_t c = 0; c < heads * d; ++c) {
      EXPECT_EQ(gradient[row * columns + c], x.dq[row * heads * d + c]);
      EXPECT_EQ(gradient[row * columns + heads * d + c], x.dk[row * heads * d + c]);
      EXPECT_EQ(gradient[row * columns + 2 * heads * d + c], x.dv[row * heads * d + c]);
    }
}

TEST(Attention, DecodeIsTheLastRowOfForward) {
  const int64_t n = 133, heads = 4;
  for (const auto& [name, pattern] : sample_patterns(n, heads)) {
    Data<double> x({2, n, heads, 6, 5});
    const HostMaps maps(*pattern, heads, n);
    run(queue, x.forward(maps.maps));
    std::vector<int32_t> keys, key_start{0};
    for (int g = 0; g < pattern->groups(heads); ++g) {
      int head = 0;
      while (pattern->group(head) != g) ++head;
      pattern->keys_of(head, n - 1, n, keys);
      key_start.push_back(static_cast<int32_t>(keys.size()));
    }
    std::vector<double> y(2 * heads * 5, NAN);
    HeadsView out{y.data(), DType::f64, 2, 1, heads, 5, heads * 5, heads * 5, 5};
    HeadsView q = x.heads(x.q, 6);
    q.data = q.row<double>(0, n - 1, 0), q.time = 1;
    run(queue, AttentionDecode{out, q, x.heads(x.k, 6), x.heads(x.v, 5), keys.data(),
                               key_start.data(), maps.maps.group_of_head, x.scale()});
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t c = 0; c < heads * 5; ++c)
        EXPECT_NEAR(y[b * heads * 5 + c], x.y[(b * n + n - 1) * heads * 5 + c], 1e-13) << name;
  }
}

TEST(Attention, NotANumberIsNotHidden) {
  const int64_t n = 3;
  const PredicatePattern pattern(n, [](int, auto i, auto j) { return j <= i; });
  const HostMaps maps(pattern, 1, n);
  Data<float> x({1, n, 1, 4, 4});
  x.k[1 * 4] = NAN;
  run(queue, x.forward(maps.maps));
  EXPECT_FALSE(std::isnan(x.y[0]));
  EXPECT_TRUE(std::isnan(x.y[1 * 4]));
  EXPECT_TRUE(std::isnan(x.lse[1]));
}

TEST(Attention, WhatDoesNotFitIsNamed) {
  const PredicatePattern pattern(8, [](int, auto i, auto j) { return j <= i; });
  const HostMaps maps(pattern, 1, Lengths(8, 6));
  Data<float> x({1, 8, 1, 4, 4, 6});
  const auto refusal = [](const auto& kernel) -> std::string {
    try {
      run(queue, kernel);
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing was refused";
  };
  const auto expect_forward = [&](const char* text, auto&& spoil) {
    AttentionForward f = x.forward(maps.maps);
    spoil(f);
    EXPECT_NE(refusal(f).find(text), std::string::npos) << text << " in: " << refusal(f);
  };
  expect_forward("expected k of shape (1, 6, 1, 4) f32, got (1, 6, 1, 3)",
                 [](auto& f) { f.k.size = 3; });
  expect_forward("expected v of shape (1, 6, 1, 4) f32, got (1, 8, 1, 4)",
                 [](auto& f) { f.v.time = 8; });
  expect_forward("expected v of", [](auto& f) { f.v.dtype = DType::f64; });
  expect_forward("expected y of shape (1, 8, 1, 4)", [](auto& f) { f.y.time = 6; });
  expect_forward("expected lse of shape (1, 1, 8)", [](auto& f) { f.lse.shape[2] = 6; });
  expect_forward("q has no data", [](auto& f) { f.q.data = nullptr; });
  expect_forward("no tile maps", [](auto& f) { f.maps = {}; });
  expect_forward("pass 0 has", [](auto& f) { f.maps.pass[0].edge = 32; });
  x.query_segments.assign(8, 0), x.key_segments.assign(6, 0);
  expect_forward("segments of queries come without those of keys",
                 [](auto& f) { f.segments.keys = {}; });
  expect_forward("expected segments.keys of shape (1, 6) i32, got (1, 8)",
                 [](auto& f) { f.segments.keys.shape[1] = 8; });
  expect_forward("expected segments.queries",
                 [](auto& f) { f.segments.queries.dtype = DType::f32; });

  const auto expect_backward = [&](const char* text, auto&& spoil) {
    AttentionBackward g = x.backward(maps.maps);
    spoil(g);
    EXPECT_NE(refusal(g).find(text), std::string::npos) << text << " in: " << refusal(g);
  };
  expect_backward("expected dq of shape (1, 8, 1, 4)", [](auto& g) { g.dq.time = 6; });
  expect_backward("expected dk of shape (1, 6, 1, 4)", [](auto& g) { g.dk.time = 8; });
  expect_backward("expected dv of shape (1, 6, 1, 4)", [](auto& g) { g.dv.batch = 2; });
  expect_backward("expected dy of", [](auto& g) { g.dy.heads = 2; });
  expect_backward("expected delta of shape (1, 1, 8)", [](auto& g) { g.delta.rank = 2; });
  expect_backward("dk has no data", [](auto& g) { g.dk.data = nullptr; });
  expect_backward("no tile maps", [](auto& g) { g.maps.passes = 0; });
}
}  // namespace
}  // namespace weft
