// SPDX-License-Identifier: MIT
// Sums over whole tensors: mean and its gradient, clipping.
#include "kernels/optimizer/reduce.h"

#include "tests/testing.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <set>
#include <utility>
#include <vector>

namespace weft {
namespace {
TEST(Mean, ForwardAndBackward) {
  std::vector<double> x = normals(10000, 1), y(1), dx(10000), dy = {3};
  StepResults results;
  const auto mean = [&] {
    run(queue, MeanForward{view_of(y, {1}), view_of(x, {10000}), &results});
    return y[0];
  };
  EXPECT_NEAR(mean(), inner_product(x, std::vector<double>(10000, 1e-4)), 1e-14);
  EXPECT_EQ(results.loss, static_cast<float>(y[0]));
  run(queue, MeanBackward{{view_of(dx, {10000})}, view_of(dy, {1}), nullptr});
  EXPECT_EQ(dx, std::vector<double>(10000, 3.0 / 10000));
  StepScalars step;
  step.loss_gradient = 0.5f;
  run(queue, MeanBackward{{view_of(dx, {10000}), true}, {}, &step});
  EXPECT_NEAR(dx[77], 3.5 / 10000, 1e-18);
  EXPECT_THROW(run(queue, MeanBackward{{view_of(dx, {10000})}, {}, nullptr}), Error);
}

// Whole numbers, whose sums are exact in any order: no element is left out or taken twice.
TEST(SquareSum, TakesEveryElementOnce) {
  std::vector<std::vector<float>> xs;
  SquareSum k;
  std::vector<double> y(1);
  k.y = view_of(y, {1});
  double want = 0;
  for (const int64_t n : {int64_t{1}, int64_t{7}, int64_t{2049}, 2 * SumOrder::kTurn + 13}) {
    std::vector<float>& x = xs.emplace_back(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(i % 101) - 50;
      want += static_cast<double>(x[i]) * x[i];
    }
  }
  for (std::vector<float>& x : xs) k.xs.push_back(view_of(x, {static_cast<int64_t>(x.size())}));
  run(queue, k);
  EXPECT_EQ(y[0], want);
}

uint64_t fingerprint(std::vector<float>& x, int64_t begin, int64_t end, uint64_t sum = 0) {
  TensorView part = view_of(x, {static_cast<int64_t>(x.size())});
  part.data = x.data() + begin, part.shape[0] = end - begin;
  run(queue, Fingerprint{&sum, part, begin});
  return sum;
}

TEST(Fingerprint, EveryBitAndEveryPlaceCounts) {
  std::vector<float> x = converted<float>(normals(1000, 1));
  std::set<uint64_t> seen{fingerprint(x, 0, 1000)};
  for (float& value : x)
    for (int bit = 0; bit < 32; ++bit) {
      const float was = value;
      value = std::bit_cast<float>(std::bit_cast<uint32_t>(was) ^ 1u << bit);
      seen.insert(fingerprint(x, 0, 1000));
      value = was;
    }
  for (std::size_t i = 1; i < x.size(); ++i) {
    std::swap(x[0], x[i]);
    seen.insert(fingerprint(x, 0, 1000));
    std::swap(x[0], x[i]);
  }
  EXPECT_EQ(seen.size(), 1u + 32u * 1000u + 999u);
  EXPECT_EQ(fingerprint(x, 700, 1000, fingerprint(x, 0, 700)), fingerprint(x, 0, 1000))
      << "the sum of its parts";
  EXPECT_THROW(run(queue, Fingerprint{nullptr, view_of(x, {1000})}), Error);
}

StepResults clipped(std::vector<float> gradients, double clip, float gradient_scale) {
  StepScalars step;
  step.gradient_scale = gradient_scale;
  StepResults results;
  const auto n = static_cast<int64_t>(gradients.size());
  run(queue, ClipCoefficient{&results, view_of(gradients, {n}), &step, clip});
  return results;
}

TEST(Clip, ScalesDownToTheClip) {
  const StepResults r = clipped({3, 4, 0}, 1, 1);
  EXPECT_FLOAT_EQ(r.gradient_norm, 5);
  EXPECT_FLOAT_EQ(r.update_scale, 0.2f);
  EXPECT_FLOAT_EQ(clipped({3, 4}, 4, 1).update_scale, 0.8f);
}

TEST(Clip, LeavesSmallGradientsAlone) {
  EXPECT_FLOAT_EQ(clipped({3, 4}, 6, 1).update_scale, 1);
  EXPECT_FLOAT_EQ(clipped({0, 0}, 1, 1).update_scale, 1);
  EXPECT_FLOAT_EQ(clipped({3, 4}, 0, 1).update_scale, 1) << "0: no clipping";
}

TEST(Clip, TakesTheLossScaleOutFirst) {
  const StepResults r = clipped({300, 400}, 1, 0.01f);
  EXPECT_FLOAT_EQ(r.gradient_norm, 5);
  EXPECT_FLOAT_EQ(r.update_scale, 0.002f);
}

TEST(Clip, SkipsWhatIsNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const StepResults r = clipped({1, bad, 2}, 1, 1);
    EXPECT_FALSE(std::isfinite(r.gradient_norm));
    EXPECT_EQ(r.update_scale, 0);
  }
  EXPECT_FLOAT_EQ(clipped({1e30f, 1e30f}, 0, 1).gradient_norm, 1.4142135e30f)
      << "squares beyond f32 are fine";
}
}  // namespace
}  // namespace weft
