// SPDX-License-Identifier: MIT
// What `bench step` of several ranks measures with, and what it prints.
#include "train/bench_ranks/exchange.h"

#include "kernels/diagnostics/timer.h"
#include "src/config/config.h"
#include "tests/train/ranks/ranks_testing.h"
#include "tests/train/training.h"
#include "train/bench/run_timer.h"
#include "train/trainer/run_folder.h"
#include "train/trainer/step.h"

#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace weft {
namespace {
// Takes 3 ms for each collective, 2 ms to join, and notes what it was told.
class Slow : public Communicator {
 public:
  Slow()
      : Communicator(1, 2) {}

  std::string carrier() const override { return "nothing"; }

  void plan(int64_t bytes, double seconds) override {
    calls += str("plan ", bytes, ' ', seconds, ' ');
  }

  void fork() override { calls += "fork "; }

  void join() override { note("join ", 2); }

  void all_reduce_sum(const TensorView&) override { note("sum ", 3); }

  void reduce_scatter_sum(const TensorView&) override { note("scatter ", 3); }

  void all_gather(const TensorView&) override { note("gather ", 3); }

  std::string calls;

 private:
  void note(const char* call, int milliseconds) {
    calls += call;
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  }
};

// On the CPU nothing overlaps with the queue.
TEST(BenchRanks, TimedCountsHowLongTheQueueIsStalled) {
  const auto device = make_device("cpu");
  const Tensor t(*device->pool, {8}, DType::f32);
  Slow slow;
  int64_t nanoseconds = 0;
  const auto timed = make_timed(*device, slow, &nanoseconds);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(timed->rank(), 1);
  EXPECT_EQ(timed->size(), 2);
  timed->fork();
  EXPECT_EQ(nanoseconds, 0);
  timed->all_reduce_sum(t);
  const std::vector<TensorView> two{t, t};
  timed->all_reduce_sums(two);
  timed->join();
  timed->reduce_scatter_sum(t);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // not counted
  timed->all_gather(t);
  EXPECT_EQ(slow.calls, "fork sum sum sum join scatter gather ");
  EXPECT_GE(nanoseconds, 17'000'000);
  EXPECT_LE(std::chrono::nanoseconds(nanoseconds + 20'000'000),
            std::chrono::steady_clock::now() - began);
}

TEST(BenchRanks, GradientsArePlannedFor) {
  const TempDir dir;
  const auto device = make_device("cpu");
  for (const char* type : {"f32", "bf16"}) {
    Config config = small_config(dir.path(), {str("train.reduce_dtype=", type)});
    config.ranks = 2;
    ParameterStore store;
    const auto model = make_model(config, store, *device);
    store.allocate(*device, DType::f32, config.seed, true, false);
    Slow slow;
    int64_t nanoseconds = 0;
    const auto timed = make_timed(*device, slow, &nanoseconds),
               lockstep = make_lockstep(*device, slow);
    GradientSum(store, *timed, config.train).plan(0.25);
    GradientSum(store, *lockstep, config.train).plan(0.5);
    EXPECT_EQ(slow.calls,
              str("plan ", store.gradients().size() * size_of(bench_dtype(type)), " 0.25 "));
    slow.calls.clear();
    GradientSum sum(store, slow, config.train);
    const TrainStep step(*device, *model, store, config, &sum);
    const double flops = flops_per_token(config.model, config.model.context) *
                         static_cast<double>(config.train.batch / 2 * config.model.context);
    const std::string seconds = slow.calls.substr(slow.calls.rfind(' ', slow.calls.size() - 2));
    EXPECT_GT(std::stod(seconds), flops / 2e15) << "a GPU of today does not do so many in a second";
    EXPECT_LT(std::stod(seconds), flops / 4e14);
  }
}

TEST(BenchRanks, LockstepSumsANumberAStepAndGathersOnlyFew) {
  const auto device = make_device("cpu");
  const Tensor small(*device->pool, {8}, DType::f32), large(*device->pool, {4096}, DType::f32);
  Slow slow;
  const auto lockstep = make_lockstep(*device, slow);
  lockstep->fork();
  lockstep->all_reduce_sum(large);
  lockstep->reduce_scatter_sum(large);
  lockstep->all_gather(large);
  EXPECT_EQ(slow.calls, "");
  lockstep->join();
  lockstep->all_gather(small);
  EXPECT_EQ(slow.calls, "sum gather ");
}

Exchange example(double clock) {
  return {
      .collectives = 3,
      .bytes = 4096,
      .together = {102, clock, 0.5, 0.25},
      .without = {101, clock, 0.125, 0},
      .alone = {99.96, clock, 0, 0},
      .exposed_ms = 1,
      .wait_ms = 1.5,
      .exposed_cycles_ms = 0.75,
  };
}

TEST(BenchRanks, SaysWhatEachKindTakes) {
  const std::string json = "{" + exchange_json(example(1600)).substr(2) + "}";
  for (const auto& [key, value] : {std::pair{"exposed_ms", 1.0},
                                   {"exposed_cycles_ms", 0.75},
                                   {"scaling", 0.98},
                                   {"join_wait_ms", 0.5},
                                   {"least_join_wait_ms", 0.25},
                                   {"join_wait_ms_without_sums", 0.125},
                                   {"clock_mhz", 1600.0},
                                   {"clock_mhz_without_sums", 1600.0},
                                   {"clock_mhz_alone", 1600.0}})
    EXPECT_EQ(json_number(json, key), value) << key;
  const std::string text = exchange_text(example(1600), 2);
  EXPECT_CONTAINS(text, "communication: exposed 1 ms, of that cycles 0.75 ms");
  EXPECT_CONTAINS(
      text, "102 ms a step at 1600 MHz: 163.2 million cycles; stalled for collectives 0.5 ms, ");
  EXPECT_EQ(exchange_json(example(0)).find("clock"), std::string::npos) << "the CPU tells none";
  EXPECT_EQ(exchange_text(example(0), 2).find("cycles"), std::string::npos);
}

TEST(BenchRanks, TimesTheStepOfAllProcesses) {
  const TempDir dir;
  write_file(dir / "small.yaml", small_yaml(dir.path()));
  Launched bench(
      dir, "bench",
      {"step", "--config", dir / "small.yaml", "--device", "cpu", "--steps", "2", "--json"}, 2);
  EXPECT_EQ(bench.wait(), 0) << bench.err();
  const std::string line = bench.out();
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  EXPECT_EQ(json_number(line, "ranks"), 2);
  EXPECT_EQ(json_number(line, "tokens"), 256);
  EXPECT_GT(json_number(line, "all_reduce_bytes").value_or(0), 4 * 32 * 96)
      << "of one matrix at least";
  EXPECT_GT(json_number(line, "ms_without_sums").value_or(0), 0);
  EXPECT_GT(json_number(line, "join_wait_ms").value_or(0), 0);
  EXPECT_GE(json_number(line, "join_wait_ms"), json_number(line, "least_join_wait_ms"));
}

#ifdef WEFT_CUDA
using CudaMultiBenchRanks = GpuRuns;

TEST_F(CudaMultiBenchRanks, SayWhatIsExposed) {
  Process bench(dir, "bench",
                {"step", "--config", dir / "small.yaml", "--gpus", "2", "--steps", "3"});
  EXPECT_EQ(bench.wait(), 0) << bench.err();
  EXPECT_CONTAINS(bench.out(), "ranks       2: ");
  EXPECT_CONTAINS(bench.out(), ": scaling ");
  EXPECT_CONTAINS(bench.out(), "communication: exposed ");
  EXPECT_CONTAINS(bench.out(), " MHz: ");
  EXPECT_CONTAINS(bench.out(), "; stalled for collectives ");
}
#endif
}  // namespace
}  // namespace weft
