// SPDX-License-Identifier: MIT
// Training in f16, on the CPU: a run whose loss scale overflows while later steps have been
// launched is the run that waits for each step.
#include "kernels/optimizer/loss_scale.h"

#include "src/config/config.h"
#include "src/files/checkpoint.h"
#include "src/files/hdf5.h"
#include "src/optimizer/optimizer.h"
#include "tests/train/trainer/f16_runs.h"
#include "train/trainer/step.h"
#include "train/trainer/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace weft {
namespace {
TEST(LossScale, IsAppliedAsTheHostWould) {
  const auto device = make_device("cpu");
  for (const double scale : {1.0, 3.0, 1000.7, 65536.0, 0x1p127})
    for (const int64_t parts : {1, 2, 3, 6}) {
      StepScalars got{.seed = 5, .draw = 6, .first_row = 7}, want = got;
      want.loss_gradient = static_cast<float>(scale / static_cast<double>(parts));
      want.gradient_scale = static_cast<float>(1 / scale);
      const LossScale state{.scale = scale};
      launch(device->queue, ApplyLossScale{.step = &got, .state = &state, .parts = parts});
      EXPECT_EQ(std::memcmp(&got, &want, sizeof want), 0) << scale << " " << parts;
    }
}

struct Case {
  std::vector<std::string> overrides;
  std::vector<int64_t> skipped;
};

// The updates that overflow are the first one, the last one before an evaluation (6), a checkpoint
// (11) and a log line (16), and the first and last one of a context (10).
TEST_F(LossScaling, StepsAheadAreThoseThatAreWaitedFor) {
  const std::vector<int64_t> every_fifth{0, 5, 10, 15};
  const Case cases[] = {
      {f16_run(4, {}), every_fifth},
      {f16_run(4, {"train.accumulation=2", "train.context_schedule=[[0, 16], [10, 24], [11, 48]]"}),
       every_fifth},
      {f16_run(1, {}), {0, 2, 4, 6, 8, 10, 12, 14, 16}},
      {f16_run(6, {"train.batch=1"}), {0, 1, 2, 9, 16}},
  };
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    SCOPED_TRACE(i);
    expect_ahead_as_waited_for(cases[i].overrides, cases[i].skipped);
  }
}

TEST_F(LossScaling, RunsGoOnWhereTheyStopped) {
  const auto overrides = f16_run(4, {"train.context_schedule=[[0, 16], [12, 48]]"});
  const Attempts attempts = one_by_one("want", overrides);
  for (const int64_t stop : {1, 5, 6, 11})
    EXPECT_EQ(run_f16(str("stop", stop), overrides, {.max_steps = stop}), "");
  for (const int64_t stop : {1, 5, 6, 11}) {
    SCOPED_TRACE(stop);
    const std::string name = str("stop", stop);
    const Hdf5File saved = Hdf5File::open(latest(name));
    EXPECT_EQ(saved.int_attribute("step"), stop);
    EXPECT_EQ(saved.int_attribute("updates"), attempts.updates[static_cast<std::size_t>(stop) - 1]);
    EXPECT_EQ(saved.real_attribute("loss_scale"),
              attempts.scales[static_cast<std::size_t>(stop) - 1]);
    EXPECT_EQ(run_f16(name, overrides, {.resume = ""}), "");
    expect_same_state(latest(name), latest("want"));
  }
}

// Whatever was launched behind it: the step that is named, and what is said of it.
TEST_F(LossScaling, ARunThatDivergesEndsAsItDoesWhenEachStepIsWaitedFor) {
  auto overrides = f16_run(4, {"train.learning_rate=1e30", "train.warmup=0", "train.clip=0"});
  const std::string ahead = run_f16("ahead", overrides);
  overrides.push_back("train.log_every=1");
  EXPECT_EQ(ahead, run_f16("waits", overrides));
  EXPECT_CONTAINS(ahead, "the loss or the gradient is not finite; first tensor: ");
}
}  // namespace
}  // namespace weft
