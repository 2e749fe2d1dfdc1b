// SPDX-License-Identifier: MIT
// Runs in f16 whose loss scale overflows now and then, and what two of them have in common.
#pragma once

#include "data/batch_source.h"
#include "kernels/optimizer/loss_scale.h"
#include "src/config/config.h"
#include "src/files/checkpoint.h"
#include "src/files/hdf5.h"
#include "tests/train/runs.h"
#include "train/trainer/step.h"

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace weft {
// 2^24 over the 192 tokens of a step does not fit into f16, half of it does: each time the scale
// comes there, the gradient overflows. From 2^24 on that is at the first step, and then after every
// `window` steps.
inline std::vector<std::string> f16_run(int64_t window, const std::vector<std::string>& more) {
  std::vector<std::string> overrides{"precision=f16",
                                     "model.context=48",
                                     "model.position_axes=[6, 8]",
                                     "train.loss_scale=16777216",
                                     str("train.loss_scale_window=", window),
                                     "train.log_every=1000",
                                     "train.eval_every=0",
                                     "train.save_every=0"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

// Weights, optimizer, counts and scale of two checkpoints.
inline void expect_same_state(const std::string& got, const std::string& want) {
  expect_same_tensors(got, want);
  const Hdf5File left = Hdf5File::open(got), right = Hdf5File::open(want);
  for (const char* key : {"step", "updates", "good_steps"})
    EXPECT_EQ(left.int_attribute(key), right.int_attribute(key)) << key;
  EXPECT_EQ(left.real_attribute("loss_scale"), right.real_attribute("loss_scale"));
}

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

  // Updates that overflow are those of `skipped`, in a run of 17 that launches steps ahead and in
  // one that waits for each; both leave what one_by_one() leaves.
  void expect_ahead_as_waited_for(std::vector<std::string> overrides,
                                  const std::vector<int64_t>& skipped) {
    const std::string name = str(calls_++);
    overrides.insert(overrides.end(), {"train.steps=17"});
    const std::string want = "want" + name, ahead = "ahead" + name, waits = "waits" + name;
    const Attempts attempts = one_by_one(want, overrides);
    EXPECT_EQ(attempts.skipped, skipped);
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

 private:
  int calls_ = 0;
};
}  // namespace weft
