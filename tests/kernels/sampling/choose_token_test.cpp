// SPDX-License-Identifier: MIT
// The choice of a token: the distribution it follows, its random number, and where it is written.
// CPU and CUDA forms are compared in tests/kernels/cases_test.cpp.
#include "kernels/sampling/choose_token.h"

#include "src/device.h"
#include "tests/testing.h"

#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

namespace weft {
namespace {
// How often each token is chosen over an even grid of `uniform`: its probability, to 1 / n.
std::vector<double> shares(const std::vector<double>& logits, const Choice& choice) {
  constexpr int n = 100000;
  std::vector<double> share(logits.size(), 0);
  for (int i = 0; i < n; ++i)
    share[static_cast<std::size_t>(choose_token(logits, choice, (i + 0.5) / n))] += 1.0 / n;
  return share;
}

void expect_shares(const std::vector<double>& got, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 3e-5) << "token " << i;
}

const std::vector<double> kLogits{std::log(0.1), std::log(0.4), std::log(0.2), std::log(0.3)};

TEST(ChooseToken, FollowsTheDistribution) {
  expect_shares(shares(kLogits, {}), {0.1, 0.4, 0.2, 0.3});
}

TEST(ChooseToken, TemperatureSharpens) {
  const double sum = 0.01 + 0.16 + 0.04 + 0.09;
  expect_shares(shares(kLogits, {.temperature = 0.5}),
                {0.01 / sum, 0.16 / sum, 0.04 / sum, 0.09 / sum});
  expect_shares(shares(kLogits, {.temperature = 0}), {0, 1, 0, 0});
  // the first of equals
  EXPECT_EQ(choose_token(std::vector<double>{1, 3, 3}, {.temperature = 0}, 0.9), 1);
}

TEST(ChooseToken, TopKKeepsTheMostLikely) {
  expect_shares(shares(kLogits, {.top_k = 2}), {0, 4.0 / 7, 0, 3.0 / 7});
  expect_shares(shares(kLogits, {.top_k = 1}), {0, 1, 0, 0});
  expect_shares(shares(kLogits, {.top_k = 9}), {0.1, 0.4, 0.2, 0.3});
}

TEST(ChooseToken, TopPKeepsTheFewestThatReachIt) {
  expect_shares(shares(kLogits, {.top_p = 0.65}), {0, 4.0 / 7, 0, 3.0 / 7});
  expect_shares(shares(kLogits, {.top_p = 0.75}), {0, 4.0 / 9, 2.0 / 9, 3.0 / 9});
  expect_shares(shares(kLogits, {.top_p = 0.01}), {0, 1, 0, 0});
  const std::vector<double> equal(4, 0.0);  // exact: two of them reach 0.5, three 0.75
  expect_shares(shares(equal, {.top_p = 0.5}), {0.5, 0.5, 0, 0});
  expect_shares(shares(equal, {.top_p = 0.75}), {1.0 / 3, 1.0 / 3, 1.0 / 3, 0});
  // Of the two that top-k leaves, the first alone has 4 / 7.
  expect_shares(shares(kLogits, {.top_k = 2, .top_p = 0.5}), {0, 1, 0, 0});
}

TEST(ChooseToken, NamesNoTokenWhereLogitsAreNotFinite) {
  EXPECT_EQ(choose_token(std::vector<double>{0, NAN}, {}, 0.5), -1);
  EXPECT_EQ(choose_token(std::vector<double>{0, -INFINITY}, {.temperature = 0}, 0.5), -1);
}

// What is written, and where; tokens that can be embedded even where
// there are none.
void check_writing(Device& device) {
  const auto integers = [&](const Shape& shape, const std::vector<int32_t>& values) {
    const Tensor t(*device.pool, shape, DType::i32);
    device.upload(t, values.data());
    return t;
  };
  const Tensor tokens = integers({2, 3}, {9, 9, 9, 9, 9, 9}),
               drawn = integers({3, 2}, {7, 7, 7, 7, 7, 7});
  const Tensor first_sample = integers({1}, {0}), logits(*device.pool, {2, 3}, DType::f32);
  const std::vector<float> values = {0, 5, 1, 0, NAN, 2};
  device.upload(logits, values.data());
  for (const int32_t at : {1, 2}) {
    const Tensor position = integers({1}, {at});
    launch(device.queue, ChooseToken{
                             .tokens = tokens,
                             .drawn = drawn,
                             .logits = logits,
                             .position = position.view().as<int32_t>(),
                             .first_sample = first_sample.view().as<int32_t>(),
                             .choice = {.temperature = 0},
                         });
    device.synchronize();
  }
  EXPECT_EQ(to_host(device, tokens), (std::vector<double>{9, 1, 1, 9, 0, 0}));
  EXPECT_EQ(to_host(device, drawn), (std::vector<double>{7, 7, 1, -1, 1, -1}));
}

TEST(ChooseToken, WritesTokensAtThePositionInMemory) { check_writing(*make_device("cpu")); }

#ifdef WEFT_CUDA
TEST(CudaChooseToken, WritesTokensAtThePositionInMemory) { check_writing(*make_device("cuda")); }
#endif

TEST(SampleUniform, DependsOnEachOfItsArguments) {
  const double u = sample_uniform(1, 2, 3);
  EXPECT_GE(u, 0);
  EXPECT_LT(u, 1);
  EXPECT_EQ(u, sample_uniform(1, 2, 3));
  EXPECT_NE(u, sample_uniform(2, 2, 3));
  EXPECT_NE(u, sample_uniform(1, 3, 3));
  EXPECT_NE(u, sample_uniform(1, 2, 4));
}
}  // namespace
}  // namespace weft
