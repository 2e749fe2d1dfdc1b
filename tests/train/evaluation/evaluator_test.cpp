// SPDX-License-Identifier: MIT
// Evaluation scores every token once, with the context that was asked for.
#include "train/evaluation/evaluator.h"

#include "src/config/config.h"
#include "tests/train/evaluation/decoded_bits.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
TEST(EvaluationWindows, ScoreEachTokenOnceWithEnoughContext) {
  for (const int64_t context : {1, 2, 3, 8, 31, 64}) {
    for (int64_t min_context = 0; min_context<context; min_context += context> 8 ? 7 : 1) {
      for (int64_t size = 1; size < 4 * context + 3; ++size) {
        std::vector<int> scored(static_cast<std::size_t>(size), 0);
        for (const EvalWindow& w : plan_windows(size, context, min_context)) {
          ASSERT_EQ(w.length, std::min(size, context));
          ASSERT_GE(w.first, 0);
          ASSERT_LE(w.first + w.length, size);
          ASSERT_GE(w.scored, w.first > 0 ? min_context : 0)
              << "size " << size << " context " << context;
          for (int64_t t = w.scored; t < w.length; ++t)
            ++scored[static_cast<std::size_t>(w.first + t)];
        }
        for (const int count : scored)
          ASSERT_EQ(count, 1) << size << " " << context << " " << min_context;
      }
    }
  }
}

TEST(EvaluationWindows, AreTheFewestWithoutAMinimumContext) {
  const auto windows = plan_windows(10, 4, 0);
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[1].first, 4);
  EXPECT_EQ(windows[2].first, 6);  // ends with the split; tokens 6 and 7 were scored before
  EXPECT_EQ(windows[2].scored, 2);
}

TEST(EvaluationWindows, RefuseImpossibleContexts) {
  EXPECT_CONTAINS(error_of([] { plan_windows(10, 4, 4); }), "minimum context");
  EXPECT_CONTAINS(error_of([] { plan_windows(10, 4, -1); }), "minimum context");
  EXPECT_CONTAINS(error_of([] { plan_windows(0, 4, 0); }), "empty");
}

class EvaluateTest : public testing::Test {
 protected:
  EvaluateTest()
      : device_(make_device("cpu")) {
    write_corpus(dir_ / "corpus.h5", 2010, 32);
    config_ = small_config(dir_.path(), {"model.tied_output=true", "train.ema_decay=0"});
    model_ = make_model(config_, store_, *device_);
    store_.allocate(*device_, DType::f32, 1, false, true);
    data_ = std::make_unique<TokenDataset>(dir_ / "corpus.h5", "valid", 32);
  }

  // Nats of token `i`, from one window of its own that starts at `first`.
  double nats(int64_t first, int64_t i) {
    Ctx ctx{.queue = &device_->queue, .pool = device_->pool.get()};
    std::vector<int32_t> host(static_cast<std::size_t>(i + 1 - first));
    data_->read(first, host);
    const Tensor tokens(*ctx.pool, {1, i + 1 - first}, DType::i32, "test");
    device_->upload(tokens, host.data());
    return to_host(*device_, model_->token_losses(ctx, tokens).value).back();
  }

  // Token i alone in the window that the rule gives it: the definition of evaluate().
  double brute_force(int64_t size, int64_t min_context) {
    const int64_t context = config_.model.context, advance = context - min_context;
    double sum = 0;
    for (int64_t i = 0; i < size; ++i) {
      int64_t end = context;
      while (end <= i) end += advance;
      sum += nats(std::max<int64_t>(0, std::min(end, size) - context), i);
    }
    return sum / static_cast<double>(size) / std::numbers::ln2;
  }

  TempDir dir_;
  Config config_;
  std::unique_ptr<Device> device_;
  ParameterStore store_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<TokenDataset> data_;
};

TEST_F(EvaluateTest, EqualsOneWindowPerToken) {
  for (const auto& [size, min_context] :
       {std::pair{130, 0}, {130, 37}, {129, 63}, {64, 10}, {65, 0}, {5, 0}}) {
    const EvalOptions options{
        .context = 64,
        .min_context = min_context,
        .batch = 3,
        .max_tokens = size,
    };
    const EvalResult result = evaluate(*device_, *model_, *data_, options);
    EXPECT_EQ(result.tokens, size);
    EXPECT_NEAR(result.bits, brute_force(size, min_context), 1e-6) << size << " " << min_context;
  }
}

TEST_F(EvaluateTest, DoesNotDependOnTheBatch) {
  const auto bits = [&](int64_t batch) {
    return evaluate(*device_, *model_, *data_, {.context = 64, .min_context = 16, .batch = batch});
  };
  const EvalResult one = bits(1);
  EXPECT_EQ(one.tokens, data_->size());
  EXPECT_NEAR(bits(2).bits, one.bits, 1e-6);
  EXPECT_NEAR(bits(7).bits, one.bits, 1e-6);
}

TEST(EvaluateDecoded, GivesTheBitsOfAWholePass) {
  expect_decoded_bits("{kind: fixed, stride: 8, c: 2}");
}

// Who watches hears of every position: a batch of long windows takes longer than a step may.
TEST_F(EvaluateTest, DecodingReportsProgressWithinABatch) {
  struct Counting : Processes {
    void report_progress() override { ++reports; }

    int64_t reports = 0;
  } counting;

  const EvalOptions options{
      .context = 64,
      .batch = 3,
      .max_tokens = 192,
      .decode = true,
      .group = &counting,
  };
  evaluate(*device_, *model_, *data_, options);
  EXPECT_EQ(counting.reports, 64) << "one batch of three windows";
}

TEST_F(EvaluateTest, MovingAverageIsUsedAndPutBack) {
  const std::vector<double> before = to_host(*device_, store_.master());
  device_->zero(store_.ema());
  double bits = 0;
  with_ema_weights(*device_, store_, [&] {
    bits = evaluate(*device_, *model_, *data_, {.context = 64, .batch = 2}).bits;
  });
  EXPECT_NEAR(bits, 5, 1e-6);  // all weights zero: 32 equally likely tokens
  EXPECT_EQ(to_host(*device_, store_.master()), before);
  EXPECT_CONTAINS(error_of([&] { with_ema_weights(*device_, store_, [] { fail("inside"); }); }),
                  "inside");
  EXPECT_EQ(to_host(*device_, store_.master()), before);
}
}  // namespace
}  // namespace weft
