// SPDX-License-Identifier: MIT
// Elementwise kernels: values, gradients, and the masks of dropout.
#include "kernels/layers/pointwise.h"

#include "kernels/philox.h"
#include "tests/testing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace weft {
namespace {
TEST(Gelu, IsXTimesSigmoid) {
  std::vector<double> x = {-3, -1, 0, 0.5, 2}, y(5);
  run(queue, ActivationForward{view_of(y, {5}), view_of(x, {5})});
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_NEAR(y[i], x[i] / (1 + std::exp(-1.702 * x[i])), 1e-15);
}

TEST(Gelu, AddsTheBiasOfEachColumn) {
  std::vector<double> x = normals(3 * 7, 1, 2), bias = normals(7, 2), sum = x, y(21), want(21);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += bias[i % 7];
  run(queue, ActivationForward{view_of(y, {3, 7}), view_of(x, {3, 7}), view_of(bias, {7})});
  run(queue, ActivationForward{view_of(want, {21}), view_of(sum, {21})});
  EXPECT_EQ(y, want);
}

TEST(Gelu, F32IsExactToAFewRoundings) {
  std::vector<float> x, y;
  for (float v = -70; v < 70; v += 0.037f) x.push_back(v);
  y.resize(x.size());
  const auto n = static_cast<int64_t>(x.size());
  run(queue, ActivationForward{view_of(y, {n}), view_of(x, {n})});
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double want = x[i] / (1 + std::exp(-1.702 * x[i]));
    // The argument of the exponential is rounded: an error of |x| / 2^24 there.
    EXPECT_NEAR(y[i], want, std::abs(want) * (1 + std::abs(x[i])) * 3e-7 + 1e-36) << x[i];
  }
}

TEST(Relu2, IsTheSquareOfThePositivePart) {
  std::vector<double> x = {-3, -0.0, 0, 0.5, 3, NAN}, y(6), dy = {1, 1, 1, 1, 2, 1}, dx(6);
  run(queue, ActivationForward{view_of(y, {6}), view_of(x, {6}), {}, Activation::relu2});
  EXPECT_EQ(std::vector<double>(y.begin(), y.begin() + 5), (std::vector<double>{0, 0, 0, 0.25, 9}));
  ActivationBackward k{{view_of(dx, {6})}, view_of(dy, {6}), view_of(x, {6})};
  k.f = Activation::relu2;
  run(queue, k);
  EXPECT_EQ(std::vector<double>(dx.begin(), dx.begin() + 5), (std::vector<double>{0, 0, 0, 1, 12}));
  EXPECT_TRUE(std::isnan(y[5]) && std::isnan(dx[5]));
  std::vector<f16> large = {f16(255.75f), f16(256.0f)}, squares(2);
  run(queue, ActivationForward{view_of(squares, {2}), view_of(large, {2}), {}, Activation::relu2});
  EXPECT_EQ(squares[0], 65408.0f);  // 65408.0625, rounded
  EXPECT_EQ(squares[1], INFINITY);
}

TEST(Activations, BackwardIsTheGradient) {
  for (const Activation f : {Activation::gelu, Activation::relu2}) {
    SCOPED_TRACE(name_of(f));
    std::vector<double> x = normals(5 * 9, 1, 2), bias = normals(9, 3), y(45), dy = normals(45, 2),
                        dx(45), dbias(9);
    for (const bool with : {false, true}) {
      const TensorView added = with ? view_of(bias, {9}) : TensorView{};
      run(queue, ActivationBackward{{view_of(dx, {5, 9})},
                                    view_of(dy, {5, 9}),
                                    view_of(x, {5, 9}),
                                    with ? GradView{view_of(dbias, {9})} : GradView{},
                                    added,
                                    f});
      const auto objective = [&] {
        run(queue, ActivationForward{view_of(y, {5, 9}), view_of(x, {5, 9}), added, f});
        return inner_product(y, dy);
      };
      expect_gradient(x, dx, objective, "dx");
      if (with) expect_gradient(bias, dbias, objective, "dbias");
    }
  }
}

std::vector<double> mask_of(int64_t n, double p, uint32_t site, const StepScalars& step) {
  std::vector<double> x(static_cast<std::size_t>(n), 1.0), y(x.size());
  Dropout k;
  k.y = {view_of(y, {n})};
  k.x = view_of(x, {n});
  k.p = p;
  k.site = site;
  k.step = &step;
  run(queue, k);
  return y;
}

TEST(Dropout, FollowsTheCounterLayout) {
  StepScalars step;
  step.seed = 0x0123456789abcdef;
  step.draw = 42;
  const std::vector<double> y = mask_of(1003, 0.4, 7, step);
  const uint32_t threshold = dropout_threshold(0.4);
  for (uint64_t e = 0; e < y.size(); ++e) {
    const Philox4 block = philox4x32({static_cast<uint32_t>(e / 8), 0, 7, 42}, step.seed);
    const uint32_t bits = (block[(e % 8) / 2] >> (e % 2 * 16)) & 0xffff;
    EXPECT_EQ(y[e], bits < threshold ? 0.0 : 65536.0 / (65536.0 - threshold)) << e;
  }
}

// The threshold itself is kept: so many of 65536 values are dropped as it says.
TEST(Dropout, KeepsWhatEqualsTheThreshold) {
  StepScalars step;
  step.seed = 11;
  const Philox4 block = philox4x32({0, 0, 3, 0}, step.seed);
  for (std::size_t e = 0; e < 8; ++e) {
    const uint32_t bits = (block[e / 2] >> (e % 2 * 16)) & 0xffff;
    ASSERT_TRUE(bits > 0 && bits < 0xffff);
    EXPECT_NE(mask_of(8, bits / 65536.0, 3, step)[e], 0) << e;
    EXPECT_EQ(mask_of(8, (bits + 1) / 65536.0, 3, step)[e], 0) << e;
  }
}

TEST(Dropout, KeepsTheMeanAndDropsP) {
  const int64_t n = 200000;
  for (const double p : {0.1, 0.5, 0.9}) {
    const std::vector<double> y = mask_of(n, p, 1, {});
    const auto dropped = static_cast<double>(std::count(y.begin(), y.end(), 0.0));
    EXPECT_NEAR(dropped / n, p, 5 * std::sqrt(p * (1 - p) / n));
    const double sum = inner_product(y, std::vector<double>(y.size(), 1.0));
    EXPECT_NEAR(sum / n, 1, 5 * std::sqrt(p / (1 - p) / n));
  }
}

TEST(Dropout, SeedDrawSiteAndElementAllMatter) {
  StepScalars step;
  const std::vector<double> first = mask_of(64, 0.5, 0, step);
  EXPECT_EQ(first, mask_of(64, 0.5, 0, step));
  EXPECT_NE(first, mask_of(64, 0.5, 1, step));
  step.draw = 1;
  EXPECT_NE(first, mask_of(64, 0.5, 0, step));
  step.draw = 0;
  step.seed = 1;
  EXPECT_NE(first, mask_of(64, 0.5, 0, step));
  EXPECT_NE(std::vector<double>(first.begin(), first.begin() + 32),
            std::vector<double>(first.begin() + 32, first.end()));
}

// A matrix cut into pieces of rows, each told where it begins, has the mask of the whole.
TEST(Dropout, MasksBelongToRowsOfTheUpdate) {
  for (const int64_t cols : {8, 5}) {
    std::vector<double> whole(static_cast<std::size_t>(30 * cols)), parts(whole.size());
    std::vector<double> ones(whole.size(), 1.0);
    StepScalars step{.seed = 5, .draw = 6};
    run(queue, Dropout{{view_of(whole, {30, cols})}, view_of(ones, {30, cols}), 0.4, 3, &step});
    for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, 7}, {7, 1}, {8, 22}}) {
      step.first_row = first;
      TensorView part = view_of(parts, {30, cols}), x = view_of(ones, {30, cols});
      part.shape[0] = x.shape[0] = rows;
      part.data = &parts[static_cast<std::size_t>(first * cols)];
      run(queue, Dropout{{part}, x, 0.4, 3, &step});
    }
    EXPECT_EQ(parts, whole) << cols;
  }
}

TEST(Dropout, RefusesToDropAll) {
  StepScalars step;
  std::vector<double> x = normals(33, 1), y(33);
  Dropout k{{view_of(y, {33})}, view_of(x, {33}), 0, 5, nullptr};
  run(queue, k);
  EXPECT_EQ(y, x);
  k.step = &step;
  k.p = 1;
  EXPECT_THROW(run(queue, k), Error);
}

TEST(Cast, RoundsToNearestEven) {
  std::vector<float> x = {1.0f, 1.00390625f, 1.01171875f, -2.5f, 1e38f, 65520.0f, 6e-8f, 1e-9f},
                     back(8);
  std::vector<bf16> brain(8);
  run(queue, Cast{view_of(brain, {8}), view_of(x, {8})});
  run(queue, Cast{view_of(back, {8}), view_of(brain, {8})});
  EXPECT_EQ(std::vector<float>(back.begin(), back.begin() + 4),
            (std::vector<float>{1.0f, 1.0f, 1.015625f, -2.5f}));
  std::vector<f16> half(8);
  run(queue, Cast{view_of(half, {8}), view_of(x, {8})});
  run(queue, Cast{view_of(back, {8}), view_of(half, {8})});
  EXPECT_EQ(back, (std::vector<float>{1.0f, 1.00390625f, 1.01171875f, -2.5f, INFINITY, INFINITY,
                                      0x1p-24f, 0.0f}));
}

TEST(Add, StoresOrAdds) {
  std::vector<double> x = {1, 2, 3}, out = {10, 20, 30};
  run(queue, Add{{view_of(out, {3}), true}, view_of(x, {3})});
  EXPECT_EQ(out, (std::vector<double>{11, 22, 33}));
  run(queue, Add{{view_of(out, {3}), false}, view_of(x, {3})});
  EXPECT_EQ(out, x);
}

TEST(SumOf, AddsInOrderInTheWideTypeAndRoundsOnce) {
  std::vector<bf16> a = {bf16(256), bf16(1)}, b = {bf16(1), bf16(2)}, c = {bf16(1), bf16(3)};
  run(queue,
      SumOf{.out = view_of(b, {2}), .xs = {view_of(a, {2}), view_of(b, {2}), view_of(c, {2})}});
  EXPECT_EQ(static_cast<float>(b[0]), 258);  // 257 is not a bf16
  EXPECT_EQ(static_cast<float>(b[1]), 6);
  std::vector<float> x = {1}, y = {0x1p-24f}, z = {-1}, out = {0};
  run(queue,
      SumOf{.out = view_of(out, {1}), .xs = {view_of(x, {1}), view_of(y, {1}), view_of(z, {1})}});
  EXPECT_EQ(out[0], 0);
  run(queue,
      SumOf{.out = view_of(out, {1}), .xs = {view_of(x, {1}), view_of(z, {1}), view_of(y, {1})}});
  EXPECT_EQ(out[0], 0x1p-24f);
}

TEST(SumOf, NeedsOneToEightTermsOfOneSize) {
  std::vector<float> x(2), y(3);
  EXPECT_THROW(run(queue, SumOf{.out = view_of(x, {2}), .xs = {}}), Error);
  EXPECT_THROW(run(queue, SumOf{.out = view_of(x, {2}), .xs = std::vector(9, view_of(x, {2}))}),
               Error);
  EXPECT_THROW(run(queue, SumOf{.out = view_of(x, {2}), .xs = {view_of(y, {3})}}), Error);
}
}  // namespace
}  // namespace weft
