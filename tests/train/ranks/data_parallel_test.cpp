// SPDX-License-Identifier: MIT
// Processes that train together, over loopback: the model that one process trains, the same bits
// every time, and runs that go on with another number of processes.
#include "train/ranks/data_parallel.h"

#include "src/config/config.h"
#include "src/files/hdf5.h"
#include "tests/train/ranks/rank_runs.h"
#include "train/trainer/run_ahead.h"
#include "train/trainer/trainer.h"

#include <cstddef>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

namespace weft {
namespace {
using TrainingRanks = RankRuns;

TEST_F(TrainingRanks, AnyNumberOfProcessesAndMicroBatchesTrainsTheSameModel) {
  const auto overrides = with({"train.steps=50", "train.batch=8", "model.embedding_dropout=0.1"});
  auto cut = overrides;
  cut.push_back("train.accumulation=2");
  EXPECT_EQ(run("one", 1, overrides), "");
  EXPECT_EQ(run("two", 2, overrides), "");
  EXPECT_EQ(run("two_cut", 2, cut), "");
  EXPECT_EQ(run("four", 4, overrides), "");
  EXPECT_EQ(run("eight", 8, overrides), "");
  ASSERT_EQ(of("one", "loss").size(), 50u);
  const Hdf5File of_one = Hdf5File::open(latest("one"));
  for (const char* name : {"two", "two_cut", "four", "eight"}) {
    const Hdf5File file = Hdf5File::open(latest(name));
    EXPECT_EQ(file.list("/"), of_one.list("/")) << name;
    for (const std::string& tensor : of_one.list("/"))
      EXPECT_EQ(file.shape_of(tensor), of_one.shape_of(tensor)) << name << ' ' << tensor;
    expect_near_series(name, "one", "loss", 1e-6);
    expect_near_series(name, "one", "grad_norm", 1e-5);
  }
  EXPECT_LT(of("eight", "loss").back(), of("eight", "loss").front() - 0.5);
  EXPECT_CONTAINS(text_of("eight", 0), "512 tokens: 8 processes x 1 x 1 x 64");
}

TEST_F(TrainingRanks, TheSameNumberOfProcessesGivesTheSameBitsStoppedOrNot) {
  const std::vector<std::string> overrides{"train.steps=16", "train.bucket_mb=1"};
  EXPECT_EQ(run("whole", 2, overrides), "");
  EXPECT_EQ(run("again", 2, overrides), "");
  EXPECT_EQ(run("parts", 2, overrides, {.max_steps = 7}), "");
  EXPECT_EQ(run("parts", 2, overrides, {.resume = ""}), "");
  for (const char* other : {"again", "parts"})
    EXPECT_TRUE(read_file(latest("whole")) == read_file(latest(other))) << other;
  EXPECT_TRUE(read_file(dir / "whole/best.h5") == read_file(dir / "parts/best.h5"));
  EXPECT_EQ(timeless_metrics(dir / "whole/metrics.jsonl"),
            timeless_metrics(dir / "parts/metrics.jsonl"));
}

TEST_F(TrainingRanks, ARunGoesOnWithAnotherNumberOfProcesses) {
  const auto overrides = with({"train.steps=20"});
  EXPECT_EQ(run("one", 1, overrides), "");
  EXPECT_EQ(run("mixed", 2, overrides, {.max_steps = 6}), "");
  EXPECT_EQ(run("mixed", 1, overrides, {.resume = "", .max_steps = 11}), "");
  auto cut = overrides;
  cut.push_back("train.accumulation=2");
  EXPECT_CONTAINS(run("mixed", 2, cut, {.resume = ""}),
                  "train.accumulation: 1 in the checkpoint, 2 now");
  EXPECT_EQ(run("mixed", 2, cut, {.resume = "", .allow_changes = true}), "");
  expect_near_series("mixed", "one", "loss", 1e-6);
}

TEST_F(TrainingRanks, MicroBatchesAreThoseOfBeforeWhereTheyCanBe) {
  const auto overrides = with({"train.steps=6"});
  EXPECT_EQ(run("run", 1, overrides, {.batch = "1", .max_steps = 2}), "");
  EXPECT_EQ(run("run", 2, overrides, {.resume = "", .batch = "auto", .max_steps = 4}), "")
      << "4 x 2 of 4";
  EXPECT_CONTAINS(text_of("run", 0), "auto: 2 sequences at a time, 1 time");
  EXPECT_EQ(run("run", 4, overrides, {.resume = "", .batch = "auto"}), "");
  EXPECT_CONTAINS(text_of("run", 0), "(train.accumulation 1), as in ");
}

TEST_F(TrainingRanks, SumsInBf16AreCloseAndTheSameOnEveryRank) {
  const auto overrides = with({"train.steps=20"});
  auto rounded = overrides;
  rounded.push_back("train.reduce_dtype=bf16");
  EXPECT_EQ(run("f32", 2, overrides), "");
  EXPECT_EQ(run("bf16", 2, rounded), "") << "weights are compared before they are saved";
  expect_near_series("bf16", "f32", "loss", 5e-3);
  expect_near_series("bf16", "f32", "grad_norm", 5e-2);
  EXPECT_NE(of("bf16", "loss"), of("f32", "loss"));
}

TEST_F(TrainingRanks, ABatchThatCannotBeSharedIsRefused) {
  EXPECT_CONTAINS(run("three", 3, {}),
                  "train.accumulation 1 on 3 processes does not divide train.batch 4");
}

TEST_F(TrainingRanks, AReasonOfOneRankStopsAllAtOneStep) {
  expect_cpu_ranks(3, [](CpuRank& r) {
    StopAgreement agreement(r.group);
    std::string why;
    int64_t step = 0;
    for (; why.empty(); ++step)
      why = agreement.agree(step, r.rank() == 1 && step >= 5 ? "SIGTERM" : "");
    EXPECT_EQ(why, "SIGTERM");
    for (const std::string& other : r.group.all_gather(str(step))) EXPECT_EQ(other, str(step));
  });
}

TEST_F(TrainingRanks, LossesAreAveragedAndChoicesAreShared) {
  expect_cpu_ranks(2, [](CpuRank& r) {
    std::vector<StepResults> steps{
        {.loss = r.rank() == 0 ? 1.0f : 2.0f, .gradient_norm = 3, .update_scale = 1},
        {.loss = 4, .gradient_norm = 5, .update_scale = 1}};
    average_losses(r.group, steps);
    EXPECT_EQ(steps[0].loss, 1.5f);
    EXPECT_EQ(steps[0].gradient_norm, 3);
    EXPECT_EQ(steps[1].loss, 4);
    const MicroBatch chosen =
        smallest_micro_batch(r.group, {r.rank() == 0 ? 2 : 8, str("text of ", r.rank())});
    EXPECT_EQ(chosen.accumulation, 8);
    EXPECT_EQ(chosen.text, "text of 1");
    EXPECT_EQ(first_to_speak(r.group, r.rank() == 1 ? "the weight w" : ""),
              "the weight w (rank 1)");
    EXPECT_EQ(first_to_speak(r.group, ""), "");
  });
}

// A loss that is not finite on one rank alone: all of them see it, at the same update.
TEST_F(TrainingRanks, ALossOfOneRankEndsAll) {
  expect_cpu_ranks(2, [](CpuRank& r) {
    std::vector<StepResults> results(10, {.loss = 2, .gradient_norm = 1, .loss_scale = 64});
    if (r.rank() == 1) results[6].loss = std::numeric_limits<float>::quiet_NaN();
    average_losses(r.group, results);
    for (std::size_t i = 0; i < results.size(); ++i)
      EXPECT_EQ(has_diverged(results[i], true), i == 6) << i;
  });
}

TEST_F(TrainingRanks, WeightsThatDifferAreNamedAndNotSaved) {
  Ranks processes(2, [&](const World& world) {
    CpuRank r(world);
    ParameterStore store;
    store.add("w", {3, 5}, Init::normal(1));
    store.allocate(*r.device, DType::f32, 1, true, false);
    check_equal_weights(r.group, *r.device, store, 7);
    if (world.rank == 1) store.master().view().as<float>()[4] += 1e-6f;
    check_equal_weights(r.group, *r.device, store, 8);
    ADD_FAILURE() << "not reached";
  });
  EXPECT_TRUE(processes.end());
  EXPECT_EQ(processes.code(0), 1);
  EXPECT_EQ(processes.code(1), 1);
  EXPECT_CONTAINS(processes.errors(0), "rank 1");
  EXPECT_CONTAINS(processes.errors(0), "after step 8");
}
}  // namespace
}  // namespace weft
