// SPDX-License-Identifier: MIT
// Processes that train together, over loopback: the model that one process trains, the same bits every time,
// and runs that go on with another number of processes.
#include "train/data_parallel.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <sstream>

#include "tests/src/ranks.h"
#include "tests/train/training.h"

namespace weft {
namespace {

class DataParallel : public testing::Test {
 protected:
  DataParallel() { write_corpus(dir / "corpus.h5", 6000, 32); }
  std::vector<std::string> with(std::vector<std::string> overrides) const {
    overrides.insert(overrides.begin(), {"train.log_every=1", "train.eval_every=0", "train.save_every=0"});
    return overrides;
  }
  // Trains in <dir>/<name> on `ranks` processes; what rank 0 throws, or "".
  std::string run(const std::string& name, int ranks, const std::vector<std::string>& overrides,
                  TrainOptions options = {}) {
    options.out = dir / name;
    options.device = "cpu";
    Ranks processes(ranks, [&](const World& world) {
      omp_set_num_threads(1);  // a pool of threads does not survive fork()
      ProcessGroup group(world, "test");
      std::ostringstream text;
      Progress progress(text, false);
      Trainer(small_config(dir.path(), overrides), options, progress, group).run();
      write_file(processes_text(name, world.rank), text.str());
    });
    EXPECT_TRUE(processes.end({}, std::chrono::seconds(300)));
    for (int r = 0; r < ranks; ++r) EXPECT_EQ(processes.code(r), processes.code(0)) << "rank " << r;
    return processes.code(0) == 0 ? "" : processes.errors(0);
  }
  std::string processes_text(const std::string& name, int rank) const {
    return dir / str(name, ".", rank, ".txt");
  }
  std::string latest(const std::string& name) const { return read_file(dir / (name + "/latest.h5")); }
  std::vector<double> of(const std::string& name, const std::string& key) {
    return metric(dir / (name + "/metrics.jsonl"), key);
  }
  void expect_near_series(const std::string& name, const std::string& want, const std::string& key,
                          double tolerance) {
    const std::vector<double> a = of(name, key), b = of(want, key);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], tolerance * std::abs(b[i])) << name << ", " << key << " of step " << i + 1;
  }
  TempDir dir;
};

TEST_F(DataParallel, AnyNumberOfProcessesAndMicroBatchesTrainsTheSameModel) {
  const auto overrides = with({"train.steps=50", "model.embedding_dropout=0.1"});
  auto cut = overrides;
  cut.push_back("train.accumulation=2");
  EXPECT_EQ(run("one", 1, overrides), "");
  EXPECT_EQ(run("two", 2, overrides), "");
  EXPECT_EQ(run("two_cut", 2, cut), "");
  EXPECT_EQ(run("four", 4, overrides), "");
  ASSERT_EQ(of("one", "loss").size(), 50u);
  for (const char* name : {"two", "two_cut", "four"}) {
    expect_near_series(name, "one", "loss", 1e-6);
    expect_near_series(name, "one", "grad_norm", 1e-5);
  }
  EXPECT_LT(of("four", "loss").back(), of("four", "loss").front() - 0.5);
  EXPECT_CONTAINS(read_file(processes_text("four", 0)), "256 tokens: 4 processes x 1 x 1 x 64");
}

TEST_F(DataParallel, TheSameNumberOfProcessesGivesTheSameBitsStoppedOrNot) {
  const std::vector<std::string> overrides{"train.steps=16", "train.bucket_mb=1"};
  EXPECT_EQ(run("whole", 2, overrides), "");
  EXPECT_EQ(run("again", 2, overrides), "");
  EXPECT_EQ(run("parts", 2, overrides, {.max_steps = 7}), "");
  EXPECT_EQ(run("parts", 2, overrides, {.resume = ""}), "");
  EXPECT_TRUE(latest("whole") == latest("again"));
  EXPECT_TRUE(latest("whole") == latest("parts"));
  EXPECT_TRUE(read_file(dir / "whole/best.h5") == read_file(dir / "parts/best.h5"));
  EXPECT_EQ(timeless_metrics(dir / "whole/metrics.jsonl"), timeless_metrics(dir / "parts/metrics.jsonl"));
}

TEST_F(DataParallel, ARunGoesOnWithAnotherNumberOfProcesses) {
  const auto overrides = with({"train.steps=20"});
  EXPECT_EQ(run("one", 1, overrides), "");
  EXPECT_EQ(run("mixed", 2, overrides, {.max_steps = 6}), "");
  EXPECT_EQ(run("mixed", 1, overrides, {.resume = "", .max_steps = 11}), "");
  auto cut = overrides;
  cut.push_back("train.accumulation=2");
  EXPECT_EQ(run("mixed", 2, cut, {.resume = ""}), "");
  expect_near_series("mixed", "one", "loss", 1e-6);
}

TEST_F(DataParallel, MicroBatchesAreThoseOfBeforeWhereTheyCanBe) {
  const auto overrides = with({"train.steps=6"});
  EXPECT_EQ(run("run", 1, overrides, {.batch = "1", .max_steps = 2}), "");
  EXPECT_EQ(run("run", 2, overrides, {.resume = "", .batch = "auto", .max_steps = 4}), "") << "4 x 2 of 4";
  EXPECT_CONTAINS(read_file(processes_text("run", 0)), "auto: 2 sequences at a time, 1 time");
  EXPECT_EQ(run("run", 4, overrides, {.resume = "", .batch = "auto"}), "");
  EXPECT_CONTAINS(read_file(processes_text("run", 0)), "(train.accumulation 1), as in ");
}

TEST_F(DataParallel, SumsInBf16AreCloseAndTheSameOnEveryRank) {
  const auto overrides = with({"train.steps=20"});
  auto rounded = overrides;
  rounded.push_back("train.reduce_dtype=bf16");
  EXPECT_EQ(run("f32", 2, overrides), "");
  EXPECT_EQ(run("bf16", 2, rounded), "") << "weights are compared before they are saved";
  expect_near_series("bf16", "f32", "loss", 5e-3);
  expect_near_series("bf16", "f32", "grad_norm", 5e-2);
  EXPECT_NE(of("bf16", "loss"), of("f32", "loss"));
}

// Parts of m, v and the moving average on each process; what is saved is whole.
TEST_F(DataParallel, AShardedOptimizerIsTheWholeOne) {
  const std::vector<std::string> overrides{"train.steps=16", "train.log_every=1"};
  auto sharded = overrides;
  sharded.push_back("train.shard_optimizer=true");
  for (const int ranks : {2, 4}) {
    const std::string whole = str("whole", ranks), parts = str("parts", ranks);
    EXPECT_EQ(run(whole, ranks, overrides), "");
    EXPECT_EQ(run(parts, ranks, sharded, {.max_steps = 7}), "");
    EXPECT_EQ(run(parts, ranks, ranks == 2 ? sharded : overrides, {.resume = ""}), "");
    expect_same_tensors(dir / (whole + "/latest.h5"), dir / (parts + "/latest.h5"));
    expect_same_tensors(dir / (whole + "/best.h5"), dir / (parts + "/best.h5"));
    EXPECT_EQ(of(whole, "valid_bits_ema"), of(parts, "valid_bits_ema"));
  }
}

// Of an odd number of elements in equal pieces of eights.
TEST_F(DataParallel, PiecesOfTheOptimizerCoverTheParameters) {
  Ranks processes(3, [&](const World& world) {
    omp_set_num_threads(1);
    ProcessGroup group(world, "test");
    const auto device = make_device("cpu");
    const auto communicator = make_communicator(*device, group);
    ParameterStore store;
    store.add("w", {7, 11}, Init::normal(1));
    store.add("bias", {5}, Init::normal(1));
    store.allocate(*device, DType::bf16, 1, true, true, {.communicator = communicator.get()});
    EXPECT_EQ(store.decayed(), 96);
    for (const Tensor& block : {store.master(), store.m(), store.v(), store.ema()})
      EXPECT_EQ(block.size(), 32 + 8);
    EXPECT_EQ(store.own_parts()[0].begin, 32 * world.rank);
    EXPECT_EQ(store.own_parts()[1].begin, 96);
  });
  EXPECT_TRUE(processes.end());
  for (int r = 0; r < 3; ++r) EXPECT_EQ(processes.code(r), 0) << processes.errors(r);
}

TEST_F(DataParallel, ABatchThatCannotBeSharedIsRefused) {
  EXPECT_CONTAINS(run("three", 3, {}), "train.accumulation 1 on 3 processes does not divide train.batch 4");
}

TEST_F(DataParallel, AReasonOfOneRankStopsAllAtOneStep) {
  Ranks processes(3, [&](const World& world) {
    ProcessGroup group(world, "test");
    StopAgreement agreement(&group);
    std::string why;
    std::int64_t step = 0;
    for (; why.empty(); ++step) why = agreement.agree(step, world.rank == 1 && step >= 5 ? "SIGTERM" : "");
    EXPECT_EQ(why, "SIGTERM");
    for (const std::string& other : group.all_gather(str(step))) EXPECT_EQ(other, str(step));
  });
  EXPECT_TRUE(processes.end());
  for (int r = 0; r < 3; ++r) EXPECT_EQ(processes.code(r), 0) << processes.errors(r);
}

TEST_F(DataParallel, LossesAreAveragedAndChoicesAreShared) {
  Ranks processes(2, [&](const World& world) {
    ProcessGroup group(world, "test");
    std::vector<StepResults> steps{
        {.loss = world.rank == 0 ? 1.0f : 2.0f, .gradient_norm = 3, .update_scale = 1},
        {.loss = 4, .gradient_norm = 5, .update_scale = 1}};
    average_losses(group, steps);
    EXPECT_EQ(steps[0].loss, 1.5f);
    EXPECT_EQ(steps[0].gradient_norm, 3);
    EXPECT_EQ(steps[1].loss, 4);
    const MicroBatch chosen =
        smallest_micro_batch(group, {world.rank == 0 ? 2 : 8, str("text of ", world.rank)});
    EXPECT_EQ(chosen.accumulation, 8);
    EXPECT_EQ(chosen.text, "text of 1");
    EXPECT_EQ(first_to_speak(group, world.rank == 1 ? "the weight w" : ""), "the weight w (rank 1)");
    EXPECT_EQ(first_to_speak(group, ""), "");
  });
  EXPECT_TRUE(processes.end());
  for (int r = 0; r < 2; ++r) EXPECT_EQ(processes.code(r), 0) << processes.errors(r);
}

TEST_F(DataParallel, WeightsThatDifferAreNamedAndNotSaved) {
  Ranks processes(2, [&](const World& world) {
    omp_set_num_threads(1);
    ProcessGroup group(world, "test");
    const auto device = make_device("cpu");
    ParameterStore store;
    store.add("w", {3, 5}, Init::normal(1));
    store.allocate(*device, DType::f32, 1, true, false);
    check_equal_weights(group, *device, store, 7);
    if (world.rank == 1) store.master().view().as<float>()[4] += 1e-6f;
    check_equal_weights(group, *device, store, 8);
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
