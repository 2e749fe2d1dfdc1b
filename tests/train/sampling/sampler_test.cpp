// SPDX-License-Identifier: MIT
// Sampling: independence of the batch, cached against plain, prompts, places and what samples are
// told.
#include "train/sampling/sampler.h"

#include "src/config/conditions.h"
#include "src/config/config.h"
#include "src/patterns/pattern.h"
#include "tests/train/training.h"

#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
class SamplerTest : public testing::Test {
 protected:
  explicit SamplerTest(const std::string& device = "cpu")
      : device_(make_device(device)) {
    config_ = small_config(dir_.path(), {"model.tied_output=true", "model.init.token_std=0.2"});
    build();
  }

  void build() {
    store_ = std::make_unique<ParameterStore>();
    model_ = make_model(config_, *store_, *device_);
    store_->allocate(*device_, DType::f32, 1, false, false);
  }

  std::vector<std::vector<int32_t>> texts(const SampleOptions& options) {
    std::vector<std::vector<int32_t>> out(static_cast<std::size_t>(options.count));
    int64_t done = 0;
    stats_ = sample(
        *device_, *model_, config_.model, options,
        [&](int64_t sample, int64_t position, int32_t token) {
          auto& text = out[static_cast<std::size_t>(sample)];
          EXPECT_EQ(position, options.given() + static_cast<int64_t>(text.size()));
          text.push_back(token);
        },
        [&](int64_t positions, int64_t all) {
          EXPECT_GT(positions, done);
          EXPECT_LE(positions, all);
          done = positions;
        });
    EXPECT_EQ(done, options.cached ? stats_.positions : 0);
    return out;
  }

  std::string refused(const SampleOptions& options) {
    return error_of([&] { check_sample_options(options, config_.model); });
  }

  void check_batches();
  void check_cached();
  void check_orders();
  void check_conditions();
  void check_windows();

  TempDir dir_;
  Config config_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<Model> model_;
  SampleStats stats_;
};

void SamplerTest::check_batches() {
  SampleOptions options{.prompt = {3, 1, 4}, .length = 40, .seed = 7, .count = 5, .batch = 1};
  const auto alone = texts(options);
  EXPECT_EQ(alone[0].size(), 40u);
  EXPECT_NE(alone[0], alone[1]);
  for (const int64_t batch : {2, 3, 8}) {
    options.batch = batch;
    EXPECT_EQ(texts(options), alone) << "batch " << batch;
  }
  options.seed = 8;
  EXPECT_NE(texts(options), alone);
}

TEST_F(SamplerTest, SameSeedSameTextInAnyBatch) { check_batches(); }

void SamplerTest::check_cached() {
  for (const double temperature : {0.0, 1.0}) {
    SampleOptions options{
        .prompt = {5},
        .length = 63,
        .temperature = temperature,
        .seed = 2,
        .count = 3,
        .batch = 2,
    };
    const auto cached = texts(options);
    EXPECT_GT(stats_.launches, 0);
    EXPECT_EQ(stats_.positions, 2 * 63);  // the prompt is read in one pass
    options.graph = false;
    EXPECT_EQ(texts(options), cached) << "without a graph, temperature " << temperature;
    options.cached = false;
    EXPECT_EQ(texts(options), cached) << "temperature " << temperature;
  }
  EXPECT_EQ(texts({.length = 64, .count = 1})[0].size(), 64u);  // no prompt, the whole context
}

TEST_F(SamplerTest, CachedIsPlain) { check_cached(); }

// Texts with prompts of their own: each as it is drawn alone, given its number.
void SamplerTest::check_orders() {
  SampleOptions options{.length = 30, .top_k = 5, .top_p = 0.9, .seed = 3, .count = 3, .batch = 2};
  options.prompts = {{1, 2, 3}, {4, 5, 6}, {1, 2, 3}};
  const auto all = texts(options);
  EXPECT_NE(all[0], all[2]);
  options.cached = false;
  EXPECT_EQ(texts(options), all);
  options.cached = true;
  options.prompts[1] = options.prompts[0];
  const auto other = texts(options);
  EXPECT_EQ(other[0], all[0]);
  EXPECT_NE(other[1], all[1]);
  EXPECT_EQ(other[2], all[2]);
  options.prompts.clear();
  options.prompt = {1, 2, 3};
  EXPECT_EQ(texts(options), other);

  for (int32_t i = 0; i < 33; ++i) options.positions.push_back((i * 7 + 2) % 33);
  const auto shuffled = texts(options);
  EXPECT_NE(shuffled, other);
  options.cached = false;
  EXPECT_EQ(texts(options), shuffled);
}

TEST_F(SamplerTest, PromptsAndPlacesOfTheirOwn) { check_orders(); }

// From here on, models named "told" are told two things, of 4 and of 6 values.
void tell_two_things() {
  static const bool once = [] {
    const auto told = [](const Config& config) -> std::vector<Condition> {
      if (config.name != "told") return {};
      return {{Augment{}, "one", 4, 0}, {Augment{}, "two", 6, 4}};
    };
    add_config_extension({told, [](const Config&, const RefuseConfig&) {},
                          [](const Config&) { return std::string(); }});
    return true;
  }();
  static_cast<void>(once);
}

// What the samples are told decides what is drawn, with a cache and without.
void SamplerTest::check_conditions() {
  tell_two_things();
  config_.name = "told";
  build();
  SampleOptions options{.length = 20, .seed = 3, .count = 3, .conditions = {0, 4}};
  const auto plain = texts(options);
  options.conditions = {2, 4};
  const auto rotated = texts(options);
  EXPECT_NE(rotated, plain);
  options.cached = false;
  EXPECT_EQ(texts(options), rotated);
  options.conditions.clear();
  EXPECT_CONTAINS(error_of([&] { texts(options); }), "told 2 things");
}

TEST_F(SamplerTest, TellsSamplesWhatTheyAre) { check_conditions(); }

// Texts beyond the context of 64 are those of whole passes over the window, which begins anew at 32
// tokens when it is full, and then draws as another sample; prompts may be longer than the context,
// too.
void SamplerTest::check_windows() {
  for (const int64_t given : {3, 90}) {
    SampleOptions options{.length = 100, .seed = 9, .count = 2, .batch = 2};
    for (int32_t i = 0; i < 2 * given; ++i) {
      if (i % given == 0) options.prompts.emplace_back();
      options.prompts.back().push_back((i * 7 + i / 5) % 32);
    }
    const auto all = texts(options);
    for (int sample = 0; sample < 2; ++sample) {
      std::vector<int32_t> window = options.prompts[sample];
      if (window.size() >= 64) window.erase(window.begin(), window.end() - 32);
      int64_t first = sample;
      for (const int32_t token : all[sample]) {
        if (window.size() == 64) window.erase(window.begin(), window.end() - 32), first += 1 << 20;
        const auto one =
            texts({.prompt = window, .length = 1, .seed = 9, .cached = false, .first = first})[0];
        ASSERT_EQ(one[0], token) << "behind " << window.size();
        window.push_back(token);
      }
    }
  }
  const auto drawn = texts({.length = 200, .seed = 4, .count = 2, .batch = 2});
  EXPECT_EQ(texts({.length = 200, .seed = 4, .count = 2, .batch = 1}), drawn);
  EXPECT_EQ(drawn[0].size(), 200u);
}

TEST_F(SamplerTest, GoesOnBeyondTheContext) { check_windows(); }

// A text goes on with what is given in between, short or long: the caches are those of all of it.
TEST_F(SamplerTest, GoesOnWithWhatAPersonTypes) {
  for (const std::size_t typed : {0, 1, 5, 150}) {
    SampleOptions options{.prompt = {1, 2}, .length = 6, .temperature = 0};
    std::vector<int32_t> all = options.prompt, drawn;
    bool asked = false;
    options.next = [&](std::vector<int32_t>& text) {
      if (std::exchange(asked, true)) return false;
      for (std::size_t i = 0; i < typed; ++i) text.push_back(static_cast<int32_t>(i * 5 % 32));
      all = text;
      return true;
    };
    sample(*device_, *model_, config_.model, options,
           [&](int64_t, int64_t, int32_t token) { drawn.push_back(token); });
    ASSERT_EQ(drawn.size(), 12u);
    if (all.size() >= 64) all.erase(all.begin(), all.end() - 32);
    const auto rest = texts({.prompt = all, .length = 6, .temperature = 0})[0];
    EXPECT_EQ(std::vector<int32_t>(drawn.begin() + 6, drawn.end()), rest) << typed;
  }
}

TEST_F(SamplerTest, EndsWhenNoMoreIsWanted) {
  int64_t drawn = 0;
  SampleOptions options{.length = 60, .count = 4, .batch = 2};
  options.ended = [&](int64_t first, int64_t) { return first == 0 && drawn > 0; };
  const SampleStats stats =
      sample(*device_, *model_, config_.model, options,
             [&](int64_t sample, int64_t, int32_t) { drawn += sample < 2 ? 1 : 0; });
  EXPECT_EQ(drawn, 2);
  EXPECT_EQ(stats.tokens, 2 + 2 * 60);
  EXPECT_GT(stats.first_seconds, 0);
  EXPECT_LE(stats.first_seconds + stats.step_seconds / 2, stats.seconds);
}

TEST_F(SamplerTest, NamesLogitsThatAreNotFinite) {
  const std::vector<float> broken(static_cast<std::size_t>(store_->master().size()), NAN);
  device_->upload(store_->master(), broken.data());
  for (const bool cached : {true, false})
    EXPECT_CONTAINS(error_of([&] { texts({.length = 5, .cached = cached}); }), "not finite");
}

TEST_F(SamplerTest, RefusesWhatMakesNoSense) {
  EXPECT_EQ(refused({.length = 64}), "");
  EXPECT_CONTAINS(refused({.length = 0}), "length");
  EXPECT_CONTAINS(refused({.prompt = {1, 2}, .length = 63, .cached = false}), "at most 62");
  EXPECT_CONTAINS(refused({.length = 5, .temperature = -1}), "temperature");
  EXPECT_CONTAINS(refused({.length = 5, .temperature = NAN}), "temperature");
  EXPECT_CONTAINS(refused({.length = 5, .top_k = -1}), "top-k");
  EXPECT_CONTAINS(refused({.length = 5, .top_p = 0}), "top-p");
  EXPECT_CONTAINS(refused({.length = 5, .top_p = 1.5}), "top-p");
  EXPECT_CONTAINS(refused({.length = 5, .count = 0}), "count");
  EXPECT_CONTAINS(refused({.prompt = {1, 99}, .length = 5}), "a token is 99");
  const auto vocab = static_cast<int32_t>(config_.model.vocab);
  EXPECT_CONTAINS(refused({.prompt = {1, vocab}, .length = 5}),
                  str("a token is ", vocab, ", the model knows 0"));
  EXPECT_EQ(refused({.prompt = {1, vocab - 1}, .length = 5}), "");
  EXPECT_CONTAINS(error_of([] { text_to_tokens("7 300", 300); }), "token 1 is 300");
  EXPECT_CONTAINS(refused({.prompt = {1}, .length = 5, .prompts = {{1}}}), "not both");
  EXPECT_CONTAINS(refused({.length = 5, .count = 3, .prompts = {{1}}}), "1 prompts for 3");
  EXPECT_CONTAINS(refused({.length = 5, .count = 2, .prompts = {{1}, {1, 2}}}), "of one length");
  EXPECT_CONTAINS(refused({.prompt = {1}, .length = 2, .positions = {0, 1}}),
                  "2 places for texts of 3");
  EXPECT_EQ(refused({.prompt = {1, 2}, .length = 63}), "");
  EXPECT_CONTAINS(refused({.length = 65, .count = 1 << 21}), "samples at most 1048576");
  EXPECT_CONTAINS(refused({.length = 2, .positions = {0, 64}}), "place is 64");
  EXPECT_CONTAINS(error_of([] { text_to_tokens("abc", 99); }), "token 2 is 99");
  EXPECT_CONTAINS(error_of([] { text_to_tokens("12 x", 300); }), "numbers");
  EXPECT_EQ(text_to_tokens("7 299", 300), (std::vector<int32_t>{7, 299}));
}

TEST_F(SamplerTest, CountsTheKeysOfThePattern) {
  // Layer 0 sees the last 8 positions, layer 1 every eighth before and itself.
  EXPECT_DOUBLE_EQ(keys_read(*model_->patterns()[0], 2, 10, 11).pattern, 8);
  EXPECT_DOUBLE_EQ(keys_read(*model_->patterns()[1], 2, 10, 11).pattern, 2);
  EXPECT_DOUBLE_EQ(keys_read(*model_->patterns()[0], 2, 6, 9).pattern, (7 + 8 + 8) / 3.0);
  EXPECT_DOUBLE_EQ(keys_read(*model_->patterns()[0], 2, 6, 9).dense, (7 + 8 + 9) / 3.0);
}

TEST_F(SamplerTest, StatisticsAreOfAPosition) {
  SampleStats stats;
  stats.tokens = 8, stats.positions = 4, stats.seconds = 2, stats.first_seconds = 0.5,
  stats.step_seconds = 1;
  EXPECT_CONTAINS(
      stats_text(stats, 0, 4, 64),
      "8 tokens in 2.00 s: 4.0 tokens/s, 500.0 ms to the first, 250.000 ms a position\n");
  const auto launches = [&](int64_t length) {
    return sample(*device_, *model_, config_.model, {.prompt = {1}, .length = length},
                  [](auto...) {})
        .launches;
  };
  EXPECT_EQ(launches(2), launches(9));
}

TEST_F(SamplerTest, StatisticsNameEachPattern) {
  const SampleStats stats =
      sample(*device_, *model_, config_.model,
             {.prompt = {1, 2}, .length = 30, .count = 3, .batch = 2}, [](auto...) {});
  ASSERT_EQ(stats.cache.size(), 2u);
  EXPECT_EQ(stats.cache[0].rows, std::vector<int64_t>(stats.cache[0].rows.size(), 8));
  const std::string text = stats_text(stats, 2, 30, 64);
  EXPECT_CONTAINS(text, "90 tokens in ");
  EXPECT_CONTAINS(text, " ms a position, ");
  EXPECT_CONTAINS(text, str(stats.launches, " kernels each\n"));
  // 2 texts, rows of 32 f32 numbers of key and value over the heads
  EXPECT_CONTAINS(text,
                  "\n  0       local(stride 8)          7.5      17.5           8        32   4.00 "
                  "KiB  16.00 KiB\n");
  EXPECT_CONTAINS(text,
                  "\n  1       strided(stride 8)        2.6      17.5          25        32  12.50 "
                  "KiB  16.00 KiB\n");
  EXPECT_CONTAINS(text, "with dense attention 32.00 KiB");
}

TEST_F(SamplerTest, StatisticsStayInsideTheWindow) {
  const SampleStats stats =
      sample(*device_, *model_, config_.model, {.prompt = {1, 2}, .length = 3}, [](auto...) {});
  // the mean of 1 .. n keys of a dense window that begins at 0, or of its last half
  EXPECT_CONTAINS(stats_text(stats, 0, 200, 64), "      32.5  ");
  for (const int64_t given : {64, 100})
    EXPECT_CONTAINS(stats_text(stats, given, 200, 64), "  48.5 ");
  EXPECT_CONTAINS(stats_text(stats, 64, 1, 64), "      33.0  ");
  EXPECT_CONTAINS(stats_text(stats, 63, 1, 64), "      64.0  ");
}

#ifdef WEFT_CUDA
class CudaSamplerTest : public SamplerTest {
 protected:
  CudaSamplerTest()
      : SamplerTest("cuda") {}
};

TEST_F(CudaSamplerTest, SameSeedSameTextInAnyBatch) { check_batches(); }

TEST_F(CudaSamplerTest, GraphIsEagerIsPlain) { check_cached(); }

TEST_F(CudaSamplerTest, PromptsAndPlacesOfTheirOwn) { check_orders(); }

TEST_F(CudaSamplerTest, TellsSamplesWhatTheyAre) { check_conditions(); }

TEST_F(CudaSamplerTest, GoesOnBeyondTheContext) { check_windows(); }
#endif
}  // namespace
}  // namespace weft
