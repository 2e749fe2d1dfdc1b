// SPDX-License-Identifier: MIT
// The watch of one process: what ends it, and what does not.
#include "train/trainer/update_watch.h"

#include "kernels/diagnostics/last_launch.h"
#include "kernels/layers/pointwise.h"
#include "src/device.h"
#include "src/files/hdf5.h"
#include "tests/train/trainer/wait_for_host.h"
#include "tests/train/training.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <variant>
#include <vector>

namespace weft {
namespace {
using std::chrono::milliseconds;

void sleep(milliseconds time) { std::this_thread::sleep_for(time); }

std::string kept() { return "kept: run/latest.h5 of step 2"; }

[[noreturn]] void hang() {
  UpdateWatch watch(milliseconds(200), kept);
  for (int step = 1; step <= 3; ++step) watch.report_step(step);
  sleep(milliseconds(5000));
  _exit(0);
}

TEST(UpdateWatch, EndsTheProcessWhenNoStepComes) {
  last_launch = "a_kernel";
  EXPECT_EXIT(hang(), testing::ExitedWithCode(1),
              "^error: no update for 0.2 s, after step 3; launched last: a_kernel. kept: "
              "run/latest.h5 of step 2\n$");
}

TEST(UpdateWatch, NamesTheLaunchesOfAGraphThatMayRun) {
  last_launch = "nothing";
  uint32_t ended = 2;
  GraphLaunches graph{.kernels = {"a", "b", "c", "d", "e"}, .interval = 2};
  last_graph = &graph;
  const auto expect = [](const std::string& text) {
    EXPECT_EXIT(hang(), testing::ExitedWithCode(1),
                "launched last: a CUDA graph of 5 launches" + text + "; then nothing");
  };
  expect("");  // of a GPU that does not count
  graph.ended = &ended;
  expect(", of which 2 have ended and one of these runs: c, d");
  ended = 4;
  expect(", of which 4 have ended and one of these runs: e");
  ended = 5;
  expect(", none of which runs");
  last_graph = nullptr;
}

#ifdef WEFT_CUDA
// The kernel waits in the graph's third run, behind one that ended and one that waits for it.
TEST(CudaUpdateWatch, NamesTheLaunchesOfAGraphThatHangs) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto hang_on_gpu = [] {
    const auto device = make_device("cuda");
    const Tensor go(*device->host_pool, {1}, DType::i32);
    const Tensor x(*device->pool, {64}, DType::f32);
    volatile int32_t& word = *go.view().as<int32_t>();
    word = 1;
    GraphedStep step(*device, true);
    const auto work = [&] {
      for (int i = 0; i < 80; ++i) launch(device->queue, Add{.out = {x.view(), false}, .x = x});
      wait_for_host(std::get<CudaQueue>(device->queue), word);
      for (int i = 0; i < 80; ++i) launch(device->queue, Add{.out = {x.view(), false}, .x = x});
    };
    for (int i = 0; i < 4; ++i) step.run(work);
    device->synchronize();
    word = 0;
    for (int i = 0; i < 2; ++i) step.run(work);
    hang();
  };
  EXPECT_EXIT(
      hang_on_gpu(), testing::ExitedWithCode(1),
      "a CUDA graph of 161 launches, of which 64 have ended and one of these runs: (add, ){16}"
      "wait_for_host(, add){15}; then nothing");
}
#endif

// Ten limits before two steps and for announced work, three times the longest pause afterwards.
TEST(UpdateWatch, LetsAProcessTakeTheTimeThatItNeeds) {
  const milliseconds limit(300);
  const auto work = [&] {
    UpdateWatch watch(limit, kept);
    watch.report_step(1);
    watch.report_step(2);
    for (int i = 0; i < 8; ++i) sleep(limit / 2), watch.report_progress();
    watch.take_time();
    sleep(4 * limit);
    watch.report_step(3);
    sleep(4 * limit);
    watch.report_step(4);
    sleep(2 * limit);
    _exit(7);
  };
  EXPECT_EXIT(work(), testing::ExitedWithCode(7), "");
}

TEST(UpdateWatch, IsOfOneProcessOnAGpuUnlessItIsAskedFor) {
  const auto cpu = make_device("cpu");
  const Processes alone;
  EXPECT_EQ(watch_for(alone, *cpu, kept), nullptr);
  setenv("WEFT_HANG_SECONDS", "9", 1);
  EXPECT_NE(watch_for(alone, *cpu, kept), nullptr);
  unsetenv("WEFT_HANG_SECONDS");
  cpu->name = "cuda:0";
  EXPECT_NE(watch_for(alone, *cpu, kept), nullptr);
}

// From step 5 on a step takes a minute.
TEST(UpdateWatch, ARunThatHangsLeavesItsLastCheckpoint) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 400000, 32);
  write_file(dir / "small.yaml", small_yaml(dir.path()));
  std::vector<std::string> words{"--config", dir / "small.yaml", "--device", "cpu",
                                 "--out",    dir / "run"};
  for (const char* set :
       {"model.context=32768", "model.position_axes=[256, 128]", "model.attention=[{kind: all}]",
        "model.layers=4", "train.batch=1", "train.eval_every=0", "train.save_every=3",
        "train.context_schedule=[[0, 16], [5, 32768]]"})
    words.insert(words.end(), {"--set", set});
  // the first step has ten times that, which a busy machine may need
  Process process(dir, "train", words, {.environment = {"WEFT_HANG_SECONDS=3"}});
  const std::string line = error_line_of(process);
  EXPECT_CONTAINS(line, "error: no update for ");  // 3 s, or three times its longest pause
  EXPECT_CONTAINS(line, " s, after step 5; launched last: ");
  EXPECT_EQ(line.find("launched last: nothing"), std::string::npos);
  EXPECT_CONTAINS(line, ". kept: " + (dir / "run/latest.h5") + " of step 3\n");
  EXPECT_EQ(Hdf5File::open(dir / "run/latest.h5").int_attribute("step"), 3);
}
}  // namespace
}  // namespace weft
