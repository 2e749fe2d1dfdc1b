// SPDX-License-Identifier: MIT
// Does it learn what it can, and only that: one batch by heart, copying across a distance, the same
// with gradients accumulated and with a context that grows.
#include "kernels/philox.h"
#include "src/config/config.h"
#include "tests/train/training.h"
#include "train/trainer/step.h"

#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
class LearningTest : public testing::Test {
 protected:
  std::string metrics(const std::string& run) { return dir / (run + "/metrics.jsonl"); }

  void run(const std::string& name, const std::vector<std::string>& overrides) {
    train(small_config(dir.path(), overrides), {.out = dir / name, .device = "cpu"});
  }

  static std::vector<std::string> with(std::vector<std::string> overrides,
                                       const std::string& another) {
    overrides.push_back(another);
    return overrides;
  }

  TempDir dir;
};

TEST_F(LearningTest, OverfitsOneBatch) {
  std::vector<uint16_t> tokens;
  for (uint32_t i = 0; i < 128; ++i) tokens.push_back(philox4x32({i, 0, 0, 0}, 1)[0] % 32);
  write_tokens(dir / "corpus.h5", tokens, 32, {0.5, 0.25, 0.25});  // one window to train on
  run("run", {"model.dropout=0", "train.batch=1", "train.steps=300", "train.eval_every=0",
              "train.save_every=0", "train.learning_rate=1e-2", "train.ema_decay=0",
              "train.log_every=50"});
  // zero logits: 32 equally likely tokens
  EXPECT_NEAR(metric(metrics("run"), "bits").front(), 5, 0.01);
  EXPECT_LT(metric(metrics("run"), "bits").back(), 0.05);
}

// x[i] = x[i - distance], but with probability `noise` a random token: nothing else helps to
// predict it.
std::vector<uint16_t> copy_stream(std::size_t count, std::size_t distance, uint32_t vocab,
                                  double noise) {
  std::vector<uint16_t> x;
  for (std::size_t i = 0; i < count; ++i) {
    const Philox4 r = philox4x32({static_cast<uint32_t>(i), 0, 0, 0}, 9);
    const bool fresh = i < distance || r[0] * 0x1p-32 < noise;
    x.push_back(fresh ? static_cast<uint16_t>(r[1] % vocab) : x[i - distance]);
  }
  return x;
}

// Bits a token of the best possible prediction: of the first `distance` tokens of a window nothing
// is known.
double copy_entropy(double context, double distance, double vocab, double noise) {
  const double other = noise / vocab, same = 1 - noise + other;
  const double known = -same * std::log2(same) - (vocab - 1) * other * std::log2(other);
  return (distance * std::log2(vocab) + (context - distance) * known) / context;
}

TEST_F(LearningTest, CopiesAcrossADistanceWithAStridedLayerOnly) {
  // The row that predicts token i holds token i - 1, so that a token 33 back lies 32 = 4 strides
  // from it.
  constexpr double kVocab = 8, kNoise = 0.05, kDistance = 33, kContext = 64;
  write_tokens(dir / "corpus.h5", copy_stream(40000, 33, 8, kNoise), 8, {0.8, 0.1, 0.1});
  const std::vector<std::string> common{
      "model.vocab=8",       "model.dropout=0",    "train.batch=16",           "train.steps=200",
      "train.eval_every=0",  "train.save_every=0", "train.learning_rate=5e-3", "train.ema_decay=0",
      "train.log_every=100", "train.eval_tokens=0"};
  run("strided", common);
  // two layers reach 14 back
  run("local", with(common, "model.attention=[{kind: local, stride: 8}]"));
  const double best = copy_entropy(kContext, kDistance, kVocab, kNoise);
  const double strided_bits = metric(metrics("strided"), "valid_bits").back();
  EXPECT_LT(strided_bits, best + 0.05) << "the best possible is " << best;
  // Nothing within reach says anything about the next token.
  EXPECT_GT(metric(metrics("local"), "valid_bits").back(), std::log2(kVocab) - 0.01);
}

TEST_F(LearningTest, AccumulatedGradientsAreThoseOfTheWholeBatch) {
  write_corpus(dir / "corpus.h5", 6000, 32);
  const std::vector<std::string> common{"model.embedding_dropout=0.1", "train.log_every=1",
                                        "train.steps=50", "train.eval_every=0"};
  run("whole", common);
  for (const char* accumulation : {"2", "4"}) {
    run(accumulation, with(common, str("train.accumulation=", accumulation)));
    for (const auto& [key, tolerance] : {std::pair{"loss", 1e-6}, {"grad_norm", 1e-5}}) {
      const std::vector<double> whole = metric(metrics("whole"), key),
                                accumulated = metric(metrics(accumulation), key);
      ASSERT_EQ(whole.size(), 50u);
      for (std::size_t i = 0; i < whole.size(); ++i)
        EXPECT_NEAR(accumulated[i], whole[i], tolerance * std::abs(whole[i]))
            << key << " of step " << i + 1;
    }
  }
}

TEST_F(LearningTest, ContextGrowsAndTheTokensOfAStepStay) {
  write_corpus(dir / "corpus.h5", 6000, 32);
  const std::vector<std::string> overrides{"train.context_schedule=[[0, 16], [5, 32], [12, 64]]",
                                           "train.log_every=1", "train.steps=15"};
  const Config config = small_config(dir.path(), overrides);
  for (int64_t step = 0; step < 15; ++step) {
    const StepShape shape = step_shape(config, step);
    EXPECT_EQ(shape.context, step < 5 ? 16 : step < 12 ? 32 : 64);
    EXPECT_EQ(shape.tokens(), 4 * 64);
  }
  run("run", overrides);
  const std::vector<double> context = metric(metrics("run"), "context"),
                            bits = metric(metrics("run"), "bits");
  ASSERT_EQ(context.size(), 15u);
  EXPECT_EQ(context[4], 16);
  EXPECT_EQ(context[5], 32);
  EXPECT_EQ(context[12], 64);
  EXPECT_LT(bits.back(), bits.front() - 0.3);
}

// With a rate that changes nothing and one window to read, losses differ by the dropout masks
// alone: from update to update, not with the micro-batches that an update is cut into.
TEST_F(LearningTest, EachUpdateDrawsItsOwnMasks) {
  std::vector<uint16_t> tokens;
  for (uint32_t i = 0; i < 128; ++i) tokens.push_back(philox4x32({i, 0, 0, 0}, 1)[0] % 32);
  write_tokens(dir / "corpus.h5", tokens, 32, {0.5, 0.25, 0.25});
  const std::vector<std::string> common{"model.tied_output=true",    "model.dropout=0.3",
                                        "train.learning_rate=1e-30", "train.weight_decay=0",
                                        "train.log_every=1",         "train.eval_every=0"};
  const std::vector<std::string> pairs = with(with(common, "train.batch=2"), "train.steps=6");
  run("single", with(with(common, "train.batch=1"), "train.steps=6"));
  run("whole", pairs);
  run("parts", with(pairs, "train.accumulation=2"));
  const std::vector<double> single = metric(metrics("single"), "loss"),
                            whole = metric(metrics("whole"), "loss"),
                            parts = metric(metrics("parts"), "loss");
  ASSERT_EQ(whole.size(), 6u);
  for (std::size_t i = 0; i + 1 < whole.size(); ++i)
    EXPECT_GT(std::abs(whole[i] - whole[i + 1]), 1e-5);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NEAR(parts[i], whole[i], 1e-6);
    EXPECT_GT(std::abs(whole[i] - single[i]), 1e-6) << "the second sequence has masks of its own";
  }
}

TEST_F(LearningTest, ScalarsOfAStep) {
  const Config config = small_config(dir.path(), {"train.accumulation=2", "train.ema_decay=0.9"});
  const StepScalars first = step_scalars(config, 0), later = step_scalars(config, 30);
  EXPECT_FLOAT_EQ(first.learning_rate, 3e-3F / 5);
  EXPECT_FLOAT_EQ(first.beta1_correction, 0.1F);
  EXPECT_FLOAT_EQ(first.ema_decay, 2.0F / 11);
  EXPECT_FLOAT_EQ(later.ema_decay, 32.0F / 41);
  EXPECT_FLOAT_EQ(later.beta1_correction, static_cast<float>(1 - std::pow(0.9, 31)));
  EXPECT_EQ(later.draw, 30u);
  EXPECT_EQ(later.loss_gradient, 0.5F);
  EXPECT_EQ(later.gradient_scale, 1);
}
}  // namespace
}  // namespace weft
