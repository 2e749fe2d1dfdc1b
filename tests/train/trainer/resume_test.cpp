// SPDX-License-Identifier: MIT
// A run that was stopped, killed or resumed ends in the same bytes as one that was not.
#include "src/config/config.h"
#include "src/files/hdf5.h"
#include "tests/train/training.h"
#include "train/trainer/trainer.h"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <gtest/gtest.h>
#include <ostream>
#include <signal.h>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace fs = std::filesystem;

namespace weft {
namespace {
class ResumeTest : public testing::Test {
 protected:
  ResumeTest() { write_corpus(dir / "corpus.h5", 6000, 32); }

  // Trains `steps` of 20 steps without a break into <dir>/whole.
  void train_whole(const std::vector<std::string>& overrides = {}) {
    train(small_config(dir.path(), overrides), {.out = dir / "whole", .device = "cpu"});
  }

  void expect_same_run(const std::string& folder) {
    for (const char* file : {"latest.h5", "best.h5", "config.yaml"})
      EXPECT_TRUE(read_file(dir / ("whole/" + std::string(file))) ==
                  read_file(dir / (folder + "/" + file)))
          << file;
    EXPECT_EQ(timeless_metrics(dir / "whole/metrics.jsonl"),
              timeless_metrics(dir / (folder + "/metrics.jsonl")));
  }

  TempDir dir;
};

TEST_F(ResumeTest, TenAndTenStepsAreTwenty) {
  const std::vector<std::string> modern{"model.positions=rotary", "model.qk_norm=rms"};
  train_whole(modern);
  const Config config = small_config(dir.path(), modern);
  const std::string stopped =
      train(config, {.out = dir / "parts", .device = "cpu", .max_steps = 10});
  EXPECT_CONTAINS(stopped, "stopped after step 10 of 20");
  EXPECT_CONTAINS(stopped, "--resume");
  EXPECT_FALSE(read_file(dir / "whole/latest.h5") == read_file(dir / "parts/latest.h5"));
  train(config, {.resume = "", .out = dir / "parts", .device = "cpu"});
  expect_same_run("parts");
}

TEST_F(ResumeTest, FromANumberedCheckpointInAnotherFolderWithTheLogOfTheFirst) {
  const std::vector<std::string> accumulate{"train.accumulation=2",
                                            "train.context_schedule=[[0, 16], [9, 64]]"};
  train_whole(accumulate);
  train(small_config(dir.path(), accumulate),
        {.resume = dir / "whole/step_00000012.h5", .out = dir / "branch", .device = "cpu"});
  EXPECT_TRUE(read_file(dir / "whole/latest.h5") == read_file(dir / "branch/latest.h5"));
  EXPECT_EQ(timeless_metrics(dir / "whole/metrics.jsonl"),
            timeless_metrics(dir / "branch/metrics.jsonl"));
}

TEST_F(ResumeTest, LogsTheFirstAndLastStepAndEvaluations) {
  train_whole();
  EXPECT_EQ(metric(dir / "whole/metrics.jsonl", "step"),
            (std::vector<double>{1, 4, 8, 12, 16, 20}));
  EXPECT_EQ(metric(dir / "whole/metrics.jsonl", "valid_bits").size(), 3u);
  EXPECT_EQ(metric(dir / "whole/metrics.jsonl", "valid_bits_ema").size(), 3u);
  EXPECT_EQ(metric(dir / "whole/metrics.jsonl", "valid_tokens"),
            (std::vector<double>{500, 500, 500}));
  const std::vector<double> elapsed = metric(dir / "whole/metrics.jsonl", "elapsed_s");
  for (std::size_t i = 1; i < elapsed.size(); ++i) EXPECT_GT(elapsed[i], elapsed[i - 1]);
}

TEST_F(ResumeTest, NumberedCheckpointsAreKeptAndRemoved) {
  train_whole({"train.save_every=5", "train.keep=2"});
  EXPECT_FALSE(fs::exists(dir / "whole/step_00000005.h5"));
  EXPECT_FALSE(fs::exists(dir / "whole/step_00000010.h5"));
  EXPECT_TRUE(fs::exists(dir / "whole/step_00000015.h5"));
  EXPECT_TRUE(read_file(dir / "whole/step_00000020.h5") == read_file(dir / "whole/latest.h5"));
}

TEST_F(ResumeTest, RefusesWhatWouldNotBeTheSameRun) {
  train_whole({"train.steps=3"});
  const TrainOptions resume{.resume = "", .out = dir / "whole", .device = "cpu"};
  const auto refused = [&](const std::string& set) {
    return error_of([&] { train(small_config(dir.path(), {"train.steps=5", set}), resume); });
  };
  EXPECT_CONTAINS(refused("train.batch=8"), "train.batch: 4 in the checkpoint, 8 now");
  EXPECT_CONTAINS(refused("model.width=64"), "model.width");
  EXPECT_CONTAINS(refused("seed=4"), "seed");
  EXPECT_CONTAINS(refused("model.position_axes=[4, 16]"), "model.position_axes");
  EXPECT_CONTAINS(refused("model.positions=rotary"),
                  "model.positions: learned in the checkpoint, rotary now");
  EXPECT_CONTAINS(refused("model.qk_norm=rms"), "model.qk_norm");
  EXPECT_CONTAINS(refused("model.rotary_base=500"), "model.rotary_base");
  const std::string again =
      error_of([&] { train(small_config(dir.path()), {.out = dir / "whole", .device = "cpu"}); });
  EXPECT_CONTAINS(again, "--resume");
  EXPECT_CONTAINS(again, "--out");
  EXPECT_CONTAINS(error_of([&] {
                    train(small_config(dir.path()),
                          {.resume = "", .out = dir / "nowhere", .device = "cpu"});
                  }),
                  "does not exist");
  EXPECT_FALSE(fs::exists(dir / "nowhere"));
  EXPECT_EQ(refused("train.log_every=1"), "");
  EXPECT_EQ(metric(dir / "whole/metrics.jsonl", "step").back(), 5);
}

TEST_F(ResumeTest, TerminateSavesAndLeavesWithZero) {
  write_file(dir / "small.yaml", small_yaml(dir.path()));
  const std::vector<std::string> arguments{
      "--config", dir / "small.yaml",  "--device", "cpu",
      "--out",    dir / "parts",       "--set",    "train.save_every=1000",
      "--set",    "train.steps=100000"};
  Process process(dir, "train", arguments);
  while (!fs::exists(dir / "parts/metrics.jsonl") ||
         metric(dir / "parts/metrics.jsonl", "step").size() < 2)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 0) << process.err();
  EXPECT_CONTAINS(process.out(), "SIGTERM: stopped after step");
  const Hdf5File saved = Hdf5File::open(dir / "parts/latest.h5");
  EXPECT_GE(saved.int_attribute("step").value_or(0), 4);
  EXPECT_FALSE(fs::exists(dir / "parts/latest.h5.tmp"));
}

// Steps at a context of 16 are short. A step at the full context, and an evaluation, take a minute
// on two cores.
std::vector<std::string> long_run(const TempDir& dir, const std::vector<std::string>& more) {
  std::vector<std::string> overrides{"data.path=" + (dir / "long.h5"),
                                     "model.context=32768",
                                     "model.position_axes=[256, 128]",
                                     "model.attention=[{kind: all}]",
                                     "model.layers=4",
                                     "train.batch=1",
                                     "train.log_every=1",
                                     "train.eval_every=0",
                                     "train.save_every=0"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST_F(ResumeTest, ALongStepEndsSoonAfterASignal) {
  write_corpus(dir / "long.h5", 400000, 32);
  write_file(dir / "small.yaml", small_yaml(dir.path()));
  const auto start_of = [&](const std::string& name) {
    std::vector<std::string> all{"--config", dir / "small.yaml", "--device", "cpu",
                                 "--out",    dir / name};
    for (const std::string& set : long_run(dir, {"train.context_schedule=[[0, 16], [2, 32768]]"}))
      all.insert(all.end(), {"--set", set});
    return all;
  };
  const std::string metrics = dir / "stopped/metrics.jsonl";
  Process process(dir, "train", start_of("stopped"));
  while (!fs::exists(metrics) || metric(metrics, "step").size() < 2)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto signalled = std::chrono::steady_clock::now();
  process.signal(SIGTERM);
  const std::string first = "finishing step 3, then saving; again: quit without saving\n";
  while (process.err().empty() && seconds_since(signalled) < 5)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_LT(seconds_since(signalled), 1.5) << "while the step goes on";
  EXPECT_EQ(process.err(), first);
  EXPECT_EQ(process.wait(), 0) << process.err();
  EXPECT_LT(seconds_since(signalled), 10);
  EXPECT_EQ(process.err(),
            first + "giving up step 3, which takes longer than 2 s; saving what was done before\n");
  EXPECT_CONTAINS(process.out(), "SIGTERM: stopped after step 2 of 20");
  std::vector<std::string> arguments = start_of("whole");
  arguments.insert(arguments.end(), {"--max-steps", "2"});
  Process whole(dir, "train", arguments);
  EXPECT_EQ(whole.wait(), 0) << whole.err();
  EXPECT_TRUE(read_file(dir / "stopped/latest.h5") == read_file(dir / "whole/latest.h5"))
      << "the state of the last step that was done";
}

// Hears that an evaluation has begun, and sends the signal.
class SignalInEvaluation : public std::stringbuf {
 public:
  std::chrono::steady_clock::time_point sent{};

 protected:
  int sync() override {
    if (sent.time_since_epoch().count() == 0 && str().find("validation: ") != std::string::npos) {
      sent = std::chrono::steady_clock::now();
      raise(SIGTERM);
    }
    return 0;
  }
};

TEST_F(ResumeTest, ALongEvaluationEndsSoonAfterASignal) {
  write_corpus(dir / "long.h5", 4000000, 32);
  const auto config = [&](const char* eval_tokens) {
    return small_config(dir.path(),
                        long_run(dir, {"model.context=16384", "model.position_axes=[128, 128]",
                                       "train.context_schedule=[[0, 16]]", "train.steps=2",
                                       str("train.eval_tokens=", eval_tokens)}));
  };
  SignalInEvaluation text;
  std::ostream out(&text);
  Progress progress(out, true);
  Processes alone;
  Trainer(config("0"), {.out = dir / "stopped", .device = "cpu"}, progress, alone).run();
  EXPECT_LT(seconds_since(text.sent), 10);
  EXPECT_CONTAINS(text.str(), "SIGTERM: stopped after step 2 of 2");
  EXPECT_CONTAINS(read_file(dir / "stopped/metrics.jsonl"), "\"valid_bits\": null}");
  // The run goes on with that evaluation, here of fewer tokens.
  train(config("100"), {.resume = "", .out = dir / "stopped", .device = "cpu"});
  train(config("100"), {.out = dir / "whole", .device = "cpu"});
  for (const char* file : {"/latest.h5", "/best.h5"})
    EXPECT_TRUE(read_file(dir / ("stopped" + std::string(file))) ==
                read_file(dir / ("whole" + std::string(file))))
        << file;
  EXPECT_EQ(timeless_metrics(dir / "stopped/metrics.jsonl"),
            timeless_metrics(dir / "whole/metrics.jsonl"));
}

// Killed at ten moments of a run that saves all the time: latest.h5 is always whole, and the run
// that goes on from it ends in the same bytes.
TEST_F(ResumeTest, SurvivesBeingKilledWhileSaving) {
  constexpr int kSteps = 60;  // more than ten rounds take
  const std::vector<std::string> often{"train.save_every=1", str("train.steps=", kSteps),
                                       "train.eval_every=10"};
  const auto whole = std::chrono::steady_clock::now();
  train_whole(often);
  const auto of_step = (std::chrono::steady_clock::now() - whole) / kSteps;
  write_file(dir / "small.yaml", small_yaml(dir.path()));
  std::vector<std::string> arguments{"--config", dir / "small.yaml", "--device", "cpu",
                                     "--out",    dir / "parts"};
  for (const std::string& set : often) arguments.insert(arguments.end(), {"--set", set});
  int killed = 0;
  for (int round = 0; round < 10; ++round) {
    std::vector<std::string> again = arguments;
    if (fs::exists(dir / "parts/latest.h5")) again.push_back("--resume");
    const auto before = fs::exists(dir / "parts/latest.h5")
                            ? fs::last_write_time(dir / "parts/latest.h5")
                            : fs::file_time_type::min();
    Process process(dir, "train", again);
    const auto start = std::chrono::steady_clock::now();
    // Wait for a first save of this round, then for a moment that differs from round to round.
    while ((!fs::exists(dir / "parts/latest.h5") ||
            fs::last_write_time(dir / "parts/latest.h5") == before) &&
           std::chrono::steady_clock::now() - start < std::chrono::seconds(20))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(of_step * round / 10);
    process.signal(SIGKILL);
    if (process.wait() == 128 + SIGKILL) ++killed;
    ASSERT_GE(Hdf5File::open(dir / "parts/latest.h5").int_attribute("step").value_or(-1), 1);
  }
  EXPECT_GE(killed, 5);
  train(small_config(dir.path(), often), {.resume = "", .out = dir / "parts", .device = "cpu"});
  expect_same_run("parts");
}
}  // namespace
}  // namespace weft
