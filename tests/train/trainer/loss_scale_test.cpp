// SPDX-License-Identifier: MIT
// Training in f16, on the CPU: a run whose loss scale overflows while later steps have been
// launched is the run that waits for each step.
#include "kernels/optimizer/loss_scale.h"

#include "src/config/config.h"
#include "src/files/checkpoint.h"
#include "src/files/hdf5.h"
#include "src/optimizer.h"
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
class LossScaling : public Runs {
 protected:
  struct Attempts {
    std::vector<int64_t> skipped = {};  // updates
    std::vector<double> losses = {}, scales = {}, updates = {};
  };

  // GradScaler by the book: launch, wait, look, and tell the next update. Leaves
  // <dir>/<name>/latest.h5.
  Attempts one_by_one(const std::string& name, const std::vector<std::string>& overrides) {
    const Config config = small_config(dir.path(), overrides);
    const auto device = make_device("cpu");
    ParameterStore store;
    const auto model = make_model(config, store, *device);
    store.allocate(*device, DType::f16, config.seed, true, true);
    const TokenDataset data(config.data.path, "train", config.model.vocab);
    const BatchSource source(config, data, nullptr);
    TrainStep step(*device, *model, store, config);
    LossScale scaler{.scale = config.train.loss_scale};
    Attempts attempts;
    for (int64_t i = 0; i < config.train.steps; ++i) {
      if (i > 0) step.set_loss_scale(scaler);  // the first one is that of the config
      const std::vector<double> before = to_host(*device, store.master());
      step.run(source, i);
      const StepResults results = step.results().back();
      const bool applied = std::isfinite(results.gradient_norm);
      EXPECT_EQ(applied, results.update_scale != 0);
      EXPECT_EQ(applied, to_host(*device, store.master()) != before);
      if (!applied) attempts.skipped.push_back(i);
      const bool grows = applied && scaler.good_steps + 1 == config.train.loss_scale_window;
      scaler = {
          .scale = scaler.scale * (applied ? grows ? 2 : 1 : 0.5),
          .good_steps = applied && !grows ? scaler.good_steps + 1 : 0,
          .skipped = static_cast<int64_t>(attempts.skipped.size()),
      };
      EXPECT_EQ(results.loss_scale, static_cast<float>(scaler.scale));
      attempts.losses.push_back(static_cast<double>(results.loss));
      attempts.scales.push_back(scaler.scale);
      attempts.updates.push_back(static_cast<double>(i + 1 - scaler.skipped));
    }
    std::filesystem::create_directories(dir / name);
    save_checkpoint(latest(name), *device, store,
                    {
                        .step = config.train.steps,
                        .updates = config.train.steps - scaler.skipped,
                        .loss_scale = scaler.scale,
                        .good_steps = scaler.good_steps,
                        .seed = config.seed,
                    },
                    "");
    return attempts;
  }

  std::string run_f16(const std::string& name, const std::vector<std::string>& overrides,
                      TrainOptions options = {}) {
    options.dtype = DType::f16;
    return run(name, overrides, options);
  }

  // What was logged of a run is what one_by_one() says.
  void expect_logged(const std::string& name, const Attempts& want) {
    const std::vector<double> steps = of(name, "step"), losses = of(name, "loss"),
                              scales = of(name, "loss_scale"), skipped = of(name, "skipped");
    ASSERT_EQ(losses.size(), steps.size());
    ASSERT_EQ(scales.size(), steps.size());
    ASSERT_EQ(skipped.size(), steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::size_t update = static_cast<std::size_t>(steps[i]) - 1;
      EXPECT_EQ(static_cast<float>(losses[i]), static_cast<float>(want.losses[update])) << steps[i];
      EXPECT_EQ(scales[i], want.scales[update]) << steps[i];
      EXPECT_EQ(steps[i] - skipped[i], want.updates[update]) << steps[i];
    }
  }
};

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
      {f16_run(4, {"train.optimizer=muon"}), every_fifth},
      {f16_run(1, {}), {0, 2, 4, 6, 8, 10, 12, 14, 16}},
      {f16_run(6, {"train.batch=1"}), {0, 1, 2, 9, 16}},
  };
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    SCOPED_TRACE(i);
    std::vector<std::string> overrides = cases[i].overrides;
    overrides.insert(overrides.end(), {"train.steps=17"});
    const std::string want = str("want", i), ahead = str("ahead", i), waits = str("waits", i);
    const Attempts attempts = one_by_one(want, overrides);
    EXPECT_EQ(attempts.skipped, cases[i].skipped);
    overrides.insert(overrides.end(),
                     {"train.eval_every=6", "train.save_every=11", "train.log_every=16"});
    EXPECT_EQ(run_f16(ahead, overrides), "");
    EXPECT_EQ(of(ahead, "step"), (std::vector<double>{1, 6, 12, 16, 17}));
    overrides.push_back("train.log_every=1");
    EXPECT_EQ(run_f16(waits, overrides), "");
    expect_same_state(latest(ahead), latest(want));
    expect_same_state(latest(waits), latest(want));
    expect_logged(ahead, attempts);
    expect_logged(waits, attempts);
    for (const char* file : {"/step_00000011.h5", "/best.h5"})
      expect_same_state(dir / (ahead + file), dir / (waits + file));
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
