// SPDX-License-Identifier: MIT
// The loop around the steps: what it logs, when it stops, which checkpoints it keeps, what it
// blames.
#include "src/config/config.h"
#include "src/files/hdf5.h"
#include "src/optimizer/optimizer.h"
#include "tests/train/runs.h"
#include "train/program/counts.h"
#include "train/program/loaded_model.h"
#include "train/trainer/report.h"
#include "train/trainer/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <gtest/gtest.h>
#include <omp.h>
#include <optional>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <tuple>
#include <unistd.h>
#include <vector>

namespace fs = std::filesystem;

namespace weft {
namespace {
class LoopTest : public Runs {
 protected:
  // Trains in <dir>/run, with these keys.
  std::string train_with(const std::vector<std::string>& overrides, TrainOptions options = {}) {
    options.out = dir / "run";
    options.device = "cpu";
    return train(small_config(dir.path(), overrides), options);
  }

  TrainState best() const { return load_model(dir / "run/best.h5", "cpu")->state; }
};

TEST_F(LoopTest, LogsTheRateOfItsStep) {
  train_with({"train.log_every=1", "train.eval_every=0", "train.warmup=7"});
  const Config config = small_config(dir.path(), {"train.warmup=7"});
  const std::vector<double> rates = of("run", "lr");
  ASSERT_EQ(rates.size(), 20u);
  for (std::size_t i = 0; i < rates.size(); ++i)
    EXPECT_FLOAT_EQ(static_cast<float>(rates[i]),
                    static_cast<float>(learning_rate(config.train, static_cast<int64_t>(i))));
}

// Tokens in the time between two lines, whatever the windows are.
TEST_F(LoopTest, LogsTokensASecond) {
  EXPECT_EQ(run("run", {"train.log_every=3", "train.eval_every=0", "train.save_every=2",
                        "train.context_schedule=[[0, 16], [9, 64]]"}),
            "");
  const std::vector<double> steps = of("run", "step"), seconds = of("run", "elapsed_s"),
                            rates = of("run", "tokens_per_s");
  ASSERT_EQ(steps, (std::vector<double>{1, 3, 6, 9, 12, 15, 18, 20}));
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double count = (steps[i] - (i > 0 ? steps[i - 1] : 0)) * 4 * 64,
                 time = seconds[i] - (i > 0 ? seconds[i - 1] : 0);
    EXPECT_NEAR(rates[i] * time / count, 1, 1e-4) << "line " << i;
  }
}

// MFU counts the FLOPs of the window in force, of one process; the time left is that of all tokens
// to come.
TEST_F(LoopTest, LinesShowTheShareOfOneDeviceAndTheTimeLeft) {
  const auto device = make_device("cpu");
  Config config = small_config(dir.path());
  const auto line = [&](int64_t context, int64_t ranks) {
    config.ranks = ranks;
    const double rate = device->peak_flops(DType::f32) / flops_per_token(config.model, context) / 4;
    StepMetrics m{.step = 8, .loss = 1, .lr = 1, .tokens_per_s = rate, .context = context};
    std::optional<double> peak = device->peak_flops(DType::f32);
    m.mfu = flops_utilization(m, config, peak);
    const std::string text = progress_line(m, config, "bits", {.elapsed = 61});
    EXPECT_CONTAINS(text, "step 8/20  1:01  bits ");
    EXPECT_CONTAINS(text, "ETA " + duration_text(12 * 4 * 64 / rate));
    return text;
  };
  EXPECT_CONTAINS(line(64, 1), " MFU 25.0 %  context 64");
  EXPECT_CONTAINS(line(16, 1), " MFU 25.0 %  context 16");
  EXPECT_CONTAINS(line(64, 2), " MFU 12.5 %  context 64");
  EXPECT_GT(flops_per_token(config.model, 64), flops_per_token(config.model, 16));
  const std::string slow = progress_line(
      {.step = 10, .loss = 1, .tokens_per_s = 256.0 / 60, .context = 16}, config, "bits");
  EXPECT_CONTAINS(slow, "ETA 10:00") << "10 steps of 256 tokens";
}

// Those behind the steps 10 .. 19 of 20: at 16 and at the end.
TEST_F(LoopTest, TheTimeLeftHasThatOfEvaluations) {
  const auto eta = [&](int64_t step, const std::string& every, double pause) {
    const std::string text =
        progress_line({.step = step, .loss = 1, .tokens_per_s = 256, .context = 64},
                      small_config(dir.path(), {"train.eval_every=" + every}), "bits",
                      {.elapsed = 0, .pause = pause});
    return text.substr(text.find("ETA"));
  };
  EXPECT_EQ(eta(10, "8", 100), "ETA 3:30");
  EXPECT_EQ(eta(16, "8", 100), "ETA 1:44");
  EXPECT_EQ(eta(10, "10", 100), "ETA 1:50");
  EXPECT_EQ(eta(10, "0", 100), "ETA 1:50");
  EXPECT_EQ(eta(20, "8", 100), "ETA 0:00");
}

// What is faster than the peak shows that it was none.
TEST_F(LoopTest, MfuIsNeverOverAHundredPercent) {
  const Config config = small_config(dir.path());
  const double flops = flops_per_token(config.model, 64);
  std::optional<double> peak = 100 * flops;
  StepMetrics m{.step = 8, .loss = 1, .tokens_per_s = 100, .context = 64};
  EXPECT_DOUBLE_EQ(flops_utilization(m, config, peak), 1);
  EXPECT_CONTAINS(legend("bits per byte", 92.1e9), "of the 92.1 GFLOP/s of a large matmul here");
  m.tokens_per_s = 101;
  m.mfu = flops_utilization(m, config, peak);
  EXPECT_FALSE(peak);
  EXPECT_EQ(progress_line(m, config, "bits").find("MFU"), std::string::npos);
  EXPECT_CONTAINS(to_json(m), "\"mfu\": null");
  m.tokens_per_s = 10;
  EXPECT_TRUE(std::isnan(flops_utilization(m, config, peak))) << "nor later";
  EXPECT_CONTAINS(legend("bits per byte", peak), "no MFU: other programs used the CPU");
}

// Another process on each core takes half of its time.
TEST_F(LoopTest, APeakMeasuredBesideOtherProgramsIsNone) {
  std::vector<pid_t> others;
  for (int i = 0; i < 2 * omp_get_max_threads(); ++i) {
    const pid_t child = fork();
    if (child == 0)
      for (volatile bool spin = true; spin;) {}
    others.push_back(child);
  }
  EXPECT_EQ(measured_peak(*make_device("cpu"), DType::f32), std::nullopt);
  for (const pid_t other : others) kill(other, SIGKILL), waitpid(other, nullptr, 0);
}

// The parts of a run's time add up to the whole, in the seconds that are shown.
TEST_F(LoopTest, TimesAddUp) {
  const std::string text =
      train_with({"train.eval_every=1", "train.save_every=1", "train.eval_tokens=0"});
  const std::size_t line = text.find("finished 20 steps in ");
  ASSERT_NE(line, std::string::npos) << text;
  const auto seconds = [&](const std::string& before, std::size_t from) {
    const std::size_t at = text.find(before, from) + before.size();
    return 60 * std::stoi(text.substr(at)) + std::stoi(text.substr(text.find(':', at) + 1));
  };
  int sum = 0;
  for (const char* part : {"(start ", "training ", "evaluation ", "saving "})
    sum += seconds(part, line);
  EXPECT_EQ(sum, seconds("finished 20 steps in ", line));
  EXPECT_LE(seconds("step 20/20  ", 0), sum);
}

TEST_F(LoopTest, MinutesAreMinutes) {
  const auto began = std::chrono::steady_clock::now();
  EXPECT_CONTAINS(train_with({"train.steps=1000000", "train.eval_every=0", "train.save_every=0"},
                             {.max_minutes = 0.02}),
                  "--max-minutes: stopped after step ");
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  EXPECT_GT(seconds, 1.2);
  EXPECT_LT(seconds, 20);
}

// The file then has an empty validation split, or none.
TEST_F(LoopTest, TrainsWithoutTokensToValidate) {
  const std::vector<uint8_t> tokens(5000, 7);
  for (const bool missing : {false, true}) {
    SCOPED_TRACE(missing);
    Hdf5File file = Hdf5File::create(dir / "corpus.h5");
    file.write("/train", StoredType::u8, {5000}, tokens.data());
    if (!missing) file.write("/valid", StoredType::u8, {0}, nullptr);
    file.commit();
    const std::vector<std::string> keys{"train.eval_every=4", "train.log_every=10"};
    fs::remove_all(dir / "run");
    EXPECT_CONTAINS(train_with(keys, {.max_steps = 6}),
                    "none to validate: no evaluation, no best.h5");
    EXPECT_EQ(train_with(keys, {.resume = ""}).find("best validation"), std::string::npos);
    EXPECT_EQ(of("run", "step"), (std::vector<double>{1, 4, 8, 10, 12, 16, 20}));
    EXPECT_TRUE(of("run", "valid_bits").empty());
    EXPECT_FALSE(fs::exists(dir / "run/best.h5"));
    EXPECT_EQ(load_model(latest("run"), "cpu")->state.step, 20);
  }
}

// Of the average where there is one, though it lags behind the weights.
TEST_F(LoopTest, TheBestIsThatOfTheAverage) {
  const std::string text = train_with({"train.eval_every=2"});
  const std::vector<double> average = of("run", "valid_bits_ema"),
                            weights = of("run", "valid_bits");
  ASSERT_EQ(average.size(), 10u);
  const auto least = std::min_element(average.begin(), average.end());
  EXPECT_NEAR(best().best_valid_bits, *least, 1e-8);
  EXPECT_GT(std::abs(*least - *std::min_element(weights.begin(), weights.end())), 1e-3);
  EXPECT_EQ(best().step, 2 * (least - average.begin() + 1));
  EXPECT_CONTAINS(text, str("\nbest validation: ", fixed_text(*least, 4),
                            " bits per byte (moving average of the weights) at step ", best().step,
                            ", ", dir / "run/best.h5", "\n"));
}

TEST_F(LoopTest, AWarmUpLongerThanTheRunIsTold) {
  EXPECT_CONTAINS(train_with({"train.warmup=21"}),
                  "; the rate grows to the end: train.warmup 21 of 20 steps\n");
  std::filesystem::remove_all(dir / "run");
  EXPECT_EQ(train_with({"train.warmup=20"}).find("the rate grows"), std::string::npos);
}

// The end of training says what its evaluations said, those of earlier starts included.
TEST_F(LoopTest, TheEndSaysThatValidationRises) {
  train_with({"train.ema_decay=0"});
  std::string log;
  for (const auto& [step, bits, valid] : {std::tuple{8, 5.0, 4.0}, {16, 4.5, 4.5}, {20, 4.2, 4.4}})
    log += str("{\"step\": ", step, ", \"bits\": ", bits, ", \"valid_bits\": ", valid, "}\n");
  write_file(dir / "run/metrics.jsonl", log);
  const std::string text = train_with({"train.ema_decay=0"}, {.resume = ""});
  EXPECT_CONTAINS(text, "\nthis run was finished already, at step 20; more: --set train.steps=N\n");
  EXPECT_CONTAINS(text, "\nbest validation: 4.0000 bits per byte at step 8, ");
  EXPECT_CONTAINS(text,
                  "\nvalidation rises while training falls: 4.0000 bits per byte at step 8, now "
                  "4.4000; batches 5.0000, since then 4.3500. The model learns");
}

TEST_F(LoopTest, AnEqualResultIsNotBetter) {
  train_with({"train.eval_every=4", "train.learning_rate=1e-30", "train.ema_decay=0"});
  const std::vector<double> bits = of("run", "valid_bits");
  ASSERT_EQ(bits.size(), 5u);
  EXPECT_EQ(bits.front(), bits.back());
  EXPECT_EQ(best().step, 4);
}

// A token of the validation split alone, whose embedding has grown beyond what can be summed.
TEST_F(LoopTest, ResultsThatAreNotFiniteAreNotBetter) {
  write_rare_token(31, 4900, 5400);
  const std::vector<std::string> overrides{"train.steps=8", "train.eval_every=4",
                                           "train.ema_decay=0"};
  train_with(overrides, {.max_steps = 2});
  enlarge_embedding("run", 31);
  train_with(overrides, {.resume = ""});
  EXPECT_EQ(of("run", "valid_tokens"), (std::vector<double>{500, 500}));
  EXPECT_TRUE(of("run", "valid_bits").empty()) << "null";
  EXPECT_FALSE(fs::exists(dir / "run/best.h5"));
  EXPECT_EQ(load_model(latest("run"), "cpu")->state.best_valid_bits, 0) << "what is saved is read";
}

TEST_F(LoopTest, ALossThatIsNotFiniteEndsTheRun) {
  write_rare_token(31, 1000, 1001);
  const std::vector<std::string> rare{"train.eval_every=0", "train.save_every=0",
                                      "train.log_every=1000000", "train.ema_decay=0"};
  train_with(rare, {.max_steps = 2});
  enlarge_embedding("run", 31);
  const auto endless = [&](std::vector<std::string> more) {
    more.insert(more.end(), rare.begin(), rare.end());
    more.emplace_back("train.steps=1000000");
    return more;
  };
  fs::copy(dir / "run", dir / "each");
  const std::string error = run("run", endless({}), {.resume = ""});
  EXPECT_CONTAINS(error, "not finite; first tensor: ");
  std::vector<std::string> logged = endless({});
  logged.emplace_back("train.log_every=1");
  const auto step = [](const std::string& text) { return text.substr(0, text.find(':')); };
  EXPECT_EQ(step(run("each", logged, {.resume = ""})), step(error));
}

TEST_F(LoopTest, OldCheckpointsGoAndThoseOfAnEarlierTryStay) {
  fs::create_directory(dir / "run");
  for (const char* name : {"step_00000900.h5", "step_00000003.h5", "step_x0000003.h5"})
    write_file(dir / str("run/", name), "");
  train_with({"train.save_every=5", "train.keep=2", "train.eval_every=0"});
  EXPECT_EQ(fs::hard_link_count(dir / "run/latest.h5"), 2u)
      << "a second name of the numbered one, no copy";
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(dir / "run"))
    if (entry.path().filename().string().starts_with("step_"))
      left.push_back(entry.path().filename());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{"step_00000015.h5", "step_00000020.h5",
                                            "step_00000900.h5", "step_x0000003.h5"}));
}
}  // namespace
}  // namespace weft
