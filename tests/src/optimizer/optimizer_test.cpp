// SPDX-License-Identifier: MIT
// Schedules against tables, one update by hand, loss scaling.
#include "src/optimizer/optimizer.h"

#include "kernels/optimizer/loss_scale.h"
#include "src/config/config.h"
#include "src/ops.h"
#include "tests/src/engine_testing.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace weft {
namespace {
std::vector<double> rates(const TrainConfig& train, const std::vector<int64_t>& steps) {
  std::vector<double> values;
  for (const int64_t step : steps) values.push_back(learning_rate(train, step));
  return values;
}

TEST(Optimizer, LearningRates) {
  TrainConfig train;
  train.steps = 14;
  train.warmup = 4;
  train.learning_rate = 2;
  train.final_learning_rate = 0.1;
  const std::vector<int64_t> steps = {0, 1, 3, 4, 8, 13, 99};
  train.schedule = Schedule::constant;
  expect_near(rates(train, steps), {0.5, 1, 2, 2, 2, 2, 2}, 1e-12, "constant");
  train.schedule = Schedule::linear;
  expect_near(rates(train, steps), {0.5, 1, 2, 1.82, 1.1, 0.2, 0.2}, 1e-12, "linear");
  train.schedule = Schedule::cosine;
  const double tenth = 0.2 + 1.8 * 0.5 * (1 + std::cos(0.1 * M_PI));
  expect_near(rates(train, steps), {0.5, 1, 2, tenth, 1.1, 0.2, 0.2}, 1e-12, "cosine");
  train.warmup = 0;
  train.steps = 1;
  EXPECT_DOUBLE_EQ(learning_rate(train, 0), 0.2);
}

TEST(Optimizer, ContextSchedule) {
  TrainConfig train;
  EXPECT_EQ(context_at(train, 512, 0), 512);
  train.context_schedule = {{0, 64}, {10, 128}, {30, 512}};
  const std::vector<std::pair<int64_t, int64_t>> table = {{0, 64},   {9, 64},   {10, 128},
                                                          {29, 128}, {30, 512}, {1000, 512}};
  for (const auto& [step, context] : table)
    EXPECT_EQ(context_at(train, 512, step), context) << step;
}

// Gradient 3, 4, 0: norm 5, clipped to 1. First update: m / c1 = g, v / c2 = g^2, so that the step
// is g / (|g| + eps). No number is a default.
TEST(Optimizer, OneUpdateByHand) {
  Engine engine;
  ParameterStore store;
  const Param weight = store.add("weight", {1, 2}, Init::constant(1)),
              bias = store.add("bias", {1}, Init::constant(1));
  store.allocate(*engine.device, DType::f32, 1, true, true);
  const float decayed_gradient[] = {3, 4}, bias_gradient[] = {0};
  engine.device->upload(store.var(weight).gradient->tensor, decayed_gradient);
  engine.device->upload(store.var(bias).gradient->tensor, bias_gradient);
  TrainConfig train;
  train.beta1 = 0.8;
  train.beta2 = 0.75;
  train.eps = 0.2;
  train.weight_decay = 0.5;
  train.clip = 1;
  engine.set({
      .learning_rate = 0.25f,
      .beta1_correction = 0.2f,
      .beta2_correction = 0.25f,
      .ema_decay = 0.75f,
  });
  Ctx ctx = engine.ctx();
  update_parameters(ctx, store, train);
  EXPECT_FLOAT_EQ(engine.results().gradient_norm, 5);
  EXPECT_FLOAT_EQ(engine.results().update_scale, 0.2f);
  expect_near(engine.host(store.var(weight).value), {1 - 0.25 * 1.25, 1 - 0.25 * 1.3}, 1e-6,
              "weight");
  expect_near(engine.host(store.var(bias).value), {1}, 1e-6, "bias");
  expect_near(engine.host(store.m().slice(0, {2})), {0.12, 0.16}, 1e-6, "m");
  expect_near(engine.host(store.v().slice(0, {2})), {0.25 * 0.36, 0.25 * 0.64}, 1e-6, "v");
  expect_near(engine.host(store.ema().slice(0, {2})), {1 - 0.0625 * 1.25, 1 - 0.0625 * 1.3}, 1e-6,
              "ema");
}

TEST(Optimizer, AGradientThatIsNotFiniteChangesNothing) {
  Engine engine;
  ParameterStore store;
  const Param weight = store.add("weight", {1, 2}, Init::normal(1));
  store.allocate(*engine.device, DType::bf16, 1, true, true);
  const std::vector<double> before = engine.host(store.master());
  const float gradient[] = {1, std::numeric_limits<float>::infinity()};
  engine.device->upload(store.var(weight).gradient->tensor, gradient);
  engine.set({.learning_rate = 0.25f, .beta1_correction = 0.1f, .beta2_correction = 0.05f});
  Ctx ctx = engine.ctx();
  update_parameters(ctx, store, TrainConfig{});
  EXPECT_FALSE(std::isfinite(engine.results().gradient_norm));
  EXPECT_EQ(engine.host(store.master()), before);
  EXPECT_EQ(engine.host(store.m()), std::vector<double>(8, 0.0));
  EXPECT_EQ(engine.host(store.ema()), before);
}

TEST(Optimizer, UpdatesNeedTraining) {
  Engine engine;
  ParameterStore store;
  store.add("weight", {1, 2}, Init::normal(1));
  store.allocate(*engine.device, DType::f32, 1, false, false);
  Ctx ctx = engine.ctx();
  EXPECT_THROW(update_parameters(ctx, store, TrainConfig{}), Error);
}

TEST(LossScale, HalvesAndDoubles) {
  LossScale state{.scale = 16};
  const std::vector<std::pair<bool, double>> table = {
      {true, 16}, {true, 16}, {false, 8}, {true, 8}, {true, 8}, {true, 16}, {false, 8}, {true, 8}};
  for (const auto& [finite, scale] : table) {
    state.count(finite, 3);
    EXPECT_EQ(state.scale, scale);
  }
  EXPECT_EQ(state.good_steps, 1);
  EXPECT_EQ(state.skipped, 2);
}

// Update 5 after two that were skipped: Adam counts it as the fourth.
TEST(LossScale, CorrectionsCountUpdatesThatWereApplied) {
  const auto device = make_device("cpu");
  for (const bool finite : {true, false}) {
    StepScalars step{.draw = 5};
    StepResults results{.gradient_norm = finite ? 1.0f : std::numeric_limits<float>::infinity()};
    LossScale state{.scale = 16, .good_steps = 1, .skipped = 2};
    launch(device->queue, UpdateLossScale{
                              .state = &state,
                              .results = &results,
                              .step = &step,
                              .window = 2,
                              .beta1 = 0.5,
                              .beta2 = 0.75,
                              .ema_decay = 0.9,
                              .momentum = 0.95,
                          });
    EXPECT_EQ(results.loss_scale, finite ? 32 : 8);
    EXPECT_EQ(state.skipped, finite ? 2 : 3);
    if (!finite) continue;
    EXPECT_EQ(step.beta1_correction, 1 - 0.0625f);
    EXPECT_FLOAT_EQ(step.beta2_correction, 1 - 0.75f * 0.75f * 0.75f * 0.75f);
    EXPECT_FLOAT_EQ(step.ema_decay, 5.0f / 14);
    EXPECT_FLOAT_EQ(step.momentum, 0.851f);
  }
}
}  // namespace
}  // namespace weft
