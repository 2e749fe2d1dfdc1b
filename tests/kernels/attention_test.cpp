// SPDX-License-Identifier: MIT
// Sparse attention on the CPU: the forward pass against a dense softmax, gradients against central
// differences.
#include <gtest/gtest.h>

#include "tests/kernels/attention_case.h"

namespace weft {
namespace {

using namespace attention_test;

CpuQueue queue;

class AttentionLength : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Attention, AttentionLength, testing::Values(1, 2, 63, 64, 65, 100, 129, 200));

TEST_P(AttentionLength, ForwardIsTheDenseSoftmax) {
  const Sizes size{2, GetParam(), 4, 5, 7};
  for (const auto& [name, pattern] : sample_patterns(size.time, 4)) {
    Data<double> x(size), expected(size);
    const HostMaps maps(*pattern, 4, size.time);
    run(queue, x.forward(maps.maps));
    dense_forward(*pattern, expected);
    EXPECT_LT(difference(x.y, expected.y), 1e-12) << name;
    EXPECT_LT(difference(x.lse, expected.lse), 1e-12) << name;
  }
}

// The objective sum(dy * y) as a function of about 15 elements of one input, by central differences.
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
  for (const std::int64_t n : {1, 5, 65, 70})
    for (const auto& [name, pattern] : sample_patterns(n, 2)) {
      Data<double> x({1, n, 2, 3, 4});
      const HostMaps maps(*pattern, 2, n);
      run(queue, x.forward(maps.maps));
      run(queue, x.backward(maps.maps));
      EXPECT_LT(worst_gradient(x, maps.maps, x.q, x.dq), 1e-6) << name << " dq " << n;
      EXPECT_LT(worst_gradient(x, maps.maps, x.k, x.dk), 1e-6) << name << " dk " << n;
      EXPECT_LT(worst_gradient(x, maps.maps, x.v, x.dv), 1e-6) << name << " dv " << n;
    }
}

TEST(Attention, EmptyRowsAndUnseenKeysAreWritten) {
  const std::int64_t n = 66;
  const PredicatePattern pattern(n, [](int, auto i, auto j) { return i % 2 == 1 && j % 3 == 0; });
  const HostMaps maps(pattern, 1, n);
  Data<float> x({1, n, 1, 4, 4});
  run(queue, x.forward(maps.maps));
  run(queue, x.backward(maps.maps));
  for (std::int64_t t = 0; t < n; ++t) {
    EXPECT_EQ(std::isinf(x.lse[t]) && x.lse[t] < 0, t % 2 == 0) << t;
    for (std::int64_t d = 0; d < 4; ++d) {
      EXPECT_EQ(x.y[t * 4 + d] == 0 && x.dq[t * 4 + d] == 0, t % 2 == 0) << t;
      EXPECT_EQ(x.dk[t * 4 + d] == 0 && x.dv[t * 4 + d] == 0, t % 3 != 0) << t;
    }
  }
}

template <class T>
void expect_close_to_f64(double tolerance) {
  const std::int64_t n = 130;
  for (const auto& [name, pattern] : sample_patterns(n, 2)) {
    Data<T> x({2, n, 2, 24, 16});
    Data<double> exact(x);
    const HostMaps maps(*pattern, 2, n);
    run(queue, x.forward(maps.maps));
    run(queue, exact.forward(maps.maps));
    EXPECT_LT(difference(x.y, exact.y), tolerance) << name;
    EXPECT_LT(difference(x.lse, exact.lse), 1e-5) << name;
    run(queue, x.backward(maps.maps));
    run(queue, exact.backward(maps.maps));
    EXPECT_LT(difference(x.dq, exact.dq), tolerance) << name;
    EXPECT_LT(difference(x.dk, exact.dk), tolerance) << name;
    EXPECT_LT(difference(x.dv, exact.dv), tolerance) << name;
  }
}
TEST(Attention, Float32) { expect_close_to_f64<float>(3e-6); }
TEST(Attention, Float16) { expect_close_to_f64<f16>(2e-3); }
TEST(Attention, BFloat16) { expect_close_to_f64<bf16>(2e-2); }

TEST(Attention, HeadsAreReadInPlaceFromAPackedProjection) {
  const std::int64_t batch = 2, n = 70, heads = 3, d = 8, columns = 3 * heads * d;
  const PredicatePattern pattern(n, [](int, auto i, auto j) { return j <= i; });
  const HostMaps maps(pattern, heads, n);
  Data<float> x({batch, n, heads, d, d});
  std::vector<float> packed(batch * n * columns), gradient(packed.size(), NAN);
  for (std::int64_t row = 0; row < batch * n; ++row)
    for (std::int64_t c = 0; c < heads * d; ++c) {
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
  for (std::int64_t row = 0; row < batch * n; ++row)
    for (std::int64_t c = 0; c < heads * d; ++c) {
      EXPECT_EQ(gradient[row * columns + c], x.dq[row * heads * d + c]);
      EXPECT_EQ(gradient[row * columns + heads * d + c], x.dk[row * heads * d + c]);
      EXPECT_EQ(gradient[row * columns + 2 * heads * d + c], x.dv[row * heads * d + c]);
    }
}

TEST(Attention, DecodeIsTheLastRowOfForward) {
  const std::int64_t n = 133, heads = 4;
  for (const auto& [name, pattern] : sample_patterns(n, heads)) {
    Data<double> x({2, n, heads, 6, 5});
    const HostMaps maps(*pattern, heads, n);
    run(queue, x.forward(maps.maps));
    std::vector<std::int32_t> keys, key_start{0};
    for (int g = 0; g < pattern->groups(heads); ++g) {
      int head = 0;
      while (pattern->group(head) != g) ++head;
      pattern->keys_of(head, n - 1, n, keys);
      key_start.push_back(static_cast<std::int32_t>(keys.size()));
    }
    std::vector<double> y(2 * heads * 5, NAN);
    HeadsView out{y.data(), DType::f64, 2, 1, heads, 5, heads * 5, heads * 5, 5};
    HeadsView q = x.heads(x.q, 6);
    q.data = q.row<double>(0, n - 1, 0), q.time = 1;
    run(queue, AttentionDecode{out, q, x.heads(x.k, 6), x.heads(x.v, 5), keys.data(), key_start.data(),
                               maps.maps.group_of_head, x.scale()});
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t c = 0; c < heads * 5; ++c)
        EXPECT_NEAR(y[b * heads * 5 + c], x.y[(b * n + n - 1) * heads * 5 + c], 1e-13) << name;
  }
}

TEST(Attention, NotANumberIsNotHidden) {
  const std::int64_t n = 3;
  const PredicatePattern pattern(n, [](int, auto i, auto j) { return j <= i; });
  const HostMaps maps(pattern, 1, n);
  Data<float> x({1, n, 1, 4, 4});
  x.k[1 * 4] = NAN;
  run(queue, x.forward(maps.maps));
  EXPECT_FALSE(std::isnan(x.y[0]));
  EXPECT_TRUE(std::isnan(x.y[1 * 4]));
  EXPECT_TRUE(std::isnan(x.lse[1]));
}

TEST(Attention, ShapesThatDoNotFitAreErrors) {
  const PredicatePattern pattern(8, [](int, auto i, auto j) { return j <= i; });
  const HostMaps maps(pattern, 1, 8);
  Data<float> x({1, 8, 1, 4, 4});
  AttentionForward f = x.forward(maps.maps);
  f.k.size = 3;
  EXPECT_THROW(run(queue, f), Error);
  f = x.forward(maps.maps);
  f.lse.shape[2] = 7;
  EXPECT_THROW(run(queue, f), Error);
  f = x.forward(maps.maps);
  f.v.dtype = DType::f64;
  EXPECT_THROW(run(queue, f), Error);
  AttentionBackward g = x.backward({});
  EXPECT_THROW(run(queue, g), Error);
}

}  // namespace
}  // namespace weft
