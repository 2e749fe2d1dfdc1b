// SPDX-License-Identifier: MIT
// Sampling: the choice of a token, independence of the batch, cached against plain.
#include "train/sampler.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/train/training.h"

namespace weft {
namespace {

// How often each token is chosen over an even grid of `uniform`: its probability, to 1 / n.
std::vector<double> shares(const std::vector<double>& logits, const SampleOptions& options) {
  constexpr int n = 100000;
  std::vector<double> share(logits.size(), 0);
  for (int i = 0; i < n; ++i)
    share[static_cast<std::size_t>(choose_token(logits, options, (i + 0.5) / n))] += 1.0 / n;
  return share;
}

void expect_shares(const std::vector<double>& got, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 3e-5) << "token " << i;
}

const std::vector<double> kLogits{std::log(0.1), std::log(0.4), std::log(0.2), std::log(0.3)};

TEST(ChooseToken, FollowsTheDistribution) { expect_shares(shares(kLogits, {}), {0.1, 0.4, 0.2, 0.3}); }

TEST(ChooseToken, TemperatureSharpens) {
  const double sum = 0.01 + 0.16 + 0.04 + 0.09;
  expect_shares(shares(kLogits, {.temperature = 0.5}), {0.01 / sum, 0.16 / sum, 0.04 / sum, 0.09 / sum});
  expect_shares(shares(kLogits, {.temperature = 0}), {0, 1, 0, 0});
  EXPECT_EQ(choose_token(std::vector<double>{1, 3, 3}, {.temperature = 0}, 0.9), 1);  // the first of equals
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
  // Of the two that top-k leaves, the first alone has 4 / 7.
  expect_shares(shares(kLogits, {.top_k = 2, .top_p = 0.5}), {0, 1, 0, 0});
}

TEST(ChooseToken, RefusesLogitsThatAreNotFinite) {
  EXPECT_CONTAINS(error_of([] { choose_token(std::vector<double>{0, NAN}, {}, 0.5); }), "not finite");
}

TEST(SampleUniform, DependsOnEachOfItsArguments) {
  const double u = sample_uniform(1, 2, 3);
  EXPECT_GE(u, 0);
  EXPECT_LT(u, 1);
  EXPECT_EQ(u, sample_uniform(1, 2, 3));
  EXPECT_NE(u, sample_uniform(2, 2, 3));
  EXPECT_NE(u, sample_uniform(1, 3, 3));
  EXPECT_NE(u, sample_uniform(1, 2, 4));
}

class SamplerTest : public testing::Test {
 protected:
  SamplerTest() : device_(make_device("cpu")) {
    config_ = small_config(dir_.path(), {"model.tied_output=true", "model.init.token_std=0.2"});
    model_ = make_model(config_, store_, *device_);
    store_.allocate(*device_, DType::f32, 1, false, false);
  }
  std::vector<std::vector<std::int32_t>> texts(const SampleOptions& options) {
    std::vector<std::vector<std::int32_t>> out(static_cast<std::size_t>(options.count));
    sample(*device_, *model_, config_.model, options,
           [&](std::int64_t sample, std::int64_t position, std::int32_t token) {
             auto& text = out[static_cast<std::size_t>(sample)];
             EXPECT_EQ(position, static_cast<std::int64_t>(options.prompt.size() + text.size()));
             text.push_back(token);
           });
    return out;
  }
  std::string refused(const SampleOptions& options) {
    return error_of([&] { check_sample_options(options, config_.model); });
  }
  TempDir dir_;
  Config config_;
  std::unique_ptr<Device> device_;
  ParameterStore store_;
  std::unique_ptr<Model> model_;
};

TEST_F(SamplerTest, SameSeedSameTextInAnyBatch) {
  SampleOptions options{.prompt = {3, 1, 4}, .length = 40, .seed = 7, .count = 5, .batch = 1};
  const auto alone = texts(options);
  EXPECT_EQ(alone[0].size(), 40u);
  EXPECT_NE(alone[0], alone[1]);
  for (const std::int64_t batch : {2, 3, 8}) {
    options.batch = batch;
    EXPECT_EQ(texts(options), alone) << "batch " << batch;
  }
  options.seed = 8;
  EXPECT_NE(texts(options), alone);
}

TEST_F(SamplerTest, CachedIsPlain) {
  for (const double temperature : {0.0, 1.0}) {
    SampleOptions options{
        .prompt = {5}, .length = 63, .temperature = temperature, .seed = 2, .count = 3, .batch = 2};
    const auto cached = texts(options);
    options.cached = false;
    EXPECT_EQ(texts(options), cached) << "temperature " << temperature;
  }
  EXPECT_EQ(texts({.length = 64, .count = 1})[0].size(), 64u);  // no prompt, the whole context
}

TEST_F(SamplerTest, RefusesWhatMakesNoSense) {
  EXPECT_EQ(refused({.length = 64}), "");
  EXPECT_CONTAINS(refused({.length = 0}), "length");
  EXPECT_CONTAINS(refused({.prompt = {1, 2}, .length = 63}), "at most 62");
  EXPECT_CONTAINS(refused({.length = 5, .temperature = -1}), "temperature");
  EXPECT_CONTAINS(refused({.length = 5, .temperature = NAN}), "temperature");
  EXPECT_CONTAINS(refused({.length = 5, .top_k = -1}), "top-k");
  EXPECT_CONTAINS(refused({.length = 5, .top_p = 0}), "top-p");
  EXPECT_CONTAINS(refused({.length = 5, .top_p = 1.5}), "top-p");
  EXPECT_CONTAINS(refused({.length = 5, .count = 0}), "count");
  EXPECT_CONTAINS(error_of([] { text_to_tokens("abc", 99); }), "token 2 is 99");
  EXPECT_CONTAINS(error_of([] { text_to_tokens("12 x", 300); }), "numbers");
  EXPECT_EQ(text_to_tokens("7 299", 300), (std::vector<std::int32_t>{7, 299}));
}

TEST_F(SamplerTest, CountsTheKeysOfThePattern) {
  // Layer 0 sees the last 8 positions, layer 1 every eighth before and itself.
  EXPECT_DOUBLE_EQ(keys_read(*model_->patterns()[0], 2, 10, 11).pattern, 8);
  EXPECT_DOUBLE_EQ(keys_read(*model_->patterns()[1], 2, 10, 11).pattern, 2);
  EXPECT_DOUBLE_EQ(keys_read(*model_->patterns()[0], 2, 6, 9).pattern, (7 + 8 + 8) / 3.0);
  EXPECT_DOUBLE_EQ(keys_read(*model_->patterns()[0], 2, 6, 9).dense, (7 + 8 + 9) / 3.0);
}

TEST_F(SamplerTest, StatisticsNameEachPattern) {
  const SampleStats stats = sample(*device_, *model_, config_.model,
                                   {.prompt = {1, 2}, .length = 30, .count = 3, .batch = 2}, [](auto...) {});
  ASSERT_EQ(stats.cache.size(), 2u);
  EXPECT_EQ(stats.cache[0].rows, std::vector<std::int64_t>(stats.cache[0].rows.size(), 8));
  const std::string text = stats_text(stats, 2, 32);
  EXPECT_CONTAINS(text, "90 tokens in ");
  // 2 texts, rows of 32 f32 numbers of key and value over the heads
  EXPECT_CONTAINS(
      text,
      "\n  0       local(stride 8)          7.5      17.5           8        32   4.00 KiB  16.00 KiB\n");
  EXPECT_CONTAINS(
      text,
      "\n  1       strided(stride 8)        2.6      17.5          25        32  12.50 KiB  16.00 KiB\n");
  EXPECT_CONTAINS(text, "with dense attention 32.00 KiB");
}

}  // namespace
}  // namespace weft
