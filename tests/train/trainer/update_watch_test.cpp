// SPDX-License-Identifier: MIT
// The watch of one process: what ends it, and what does not.
#include "train/trainer/update_watch.h"

#include "kernels/diagnostics/last_launch.h"
#include "src/files/hdf5.h"
#include "tests/train/training.h"

#include <chrono>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

namespace weft {
namespace {
using std::chrono::milliseconds;

void sleep(milliseconds time) { std::this_thread::sleep_for(time); }

std::string kept() { return "kept: run/latest.h5 of step 2"; }

TEST(UpdateWatch, EndsTheProcessWhenNoStepComes) {
  const auto hang = [] {
    UpdateWatch watch(milliseconds(200), kept);
    for (int step = 1; step <= 3; ++step) watch.report_step(step);
    last_launch = "a_kernel";
    sleep(milliseconds(5000));
    _exit(0);
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(1),
              "^error: no update for 0.2 s, after step 3; launched last: a_kernel. kept: "
              "run/latest.h5 of step 2\n$");
  const auto graph = [&] {
    last_graph = "a CUDA graph of 7 nodes that ends with adamw";
    hang();
  };
  EXPECT_EXIT(graph(), testing::ExitedWithCode(1),
              "launched last: a CUDA graph of 7 nodes that ends with adamw, then a_kernel");
}

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
  Process process(dir, "train", words, {.environment = {"WEFT_HANG_SECONDS=1"}});
  const std::string line = error_line_of(process);
  EXPECT_CONTAINS(line, "error: no update for ");  // 1 s, or three times its longest pause
  EXPECT_CONTAINS(line, " s, after step 5; launched last: ");
  EXPECT_EQ(line.find("launched last: nothing"), std::string::npos);
  EXPECT_CONTAINS(line, ". kept: " + (dir / "run/latest.h5") + " of step 3\n");
  EXPECT_EQ(Hdf5File::open(dir / "run/latest.h5").int_attribute("step"), 3);
}
}  // namespace
}  // namespace weft
