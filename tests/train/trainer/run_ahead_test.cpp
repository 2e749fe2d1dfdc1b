// SPDX-License-Identifier: MIT
// Updates launched ahead, on a device that is made up: gradients overflow where a test says, and nothing of
// it is seen in weights, losses and scales.
#include "train/trainer/run_ahead.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "kernels/optimizer/loss_scale.h"
#include "kernels/philox.h"
#include "src/device.h"
#include "tests/src/ranks/ranks.h"
#include "train/trainer/data_parallel.h"

namespace weft {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                kNan = std::numeric_limits<float>::quiet_NaN();

// What an update does, but for the sizes: its loss is a function of the weights and of its number, the
// weights are then another function of both. Its gradient overflows where loss_gradient is above a limit.
struct Model {
  std::map<std::int64_t, double> limits = {};  // by update; others: none
  std::map<std::int64_t, float> losses = {};   // in place of the function
  bool loss_alone = false;                     // a loss that is not finite has a gradient that is
  std::uint64_t weights = 1;

  StepResults run(const StepScalars& step) const {
    const auto number = static_cast<std::int64_t>(step.draw);
    const auto limit = limits.find(number);
    const auto loss = losses.find(number);
    const bool overflow = limit != limits.end() && static_cast<double>(step.loss_gradient) > limit->second;
    const std::uint32_t bits = philox4x32({static_cast<std::uint32_t>(step.draw), 0, 0, 0}, weights)[0];
    const float value = loss == losses.end() ? static_cast<float>(bits) * 0x1p-32f : loss->second;
    const bool finite = (loss_alone || std::isfinite(value)) && !overflow;
    return {.loss = value, .gradient_norm = finite ? 1 : kNan, .update_scale = finite ? 1.0f : 0.0f};
  }
  void apply(const StepScalars& step) {
    const Philox4 bits = philox4x32({static_cast<std::uint32_t>(step.draw), 1, 0, 0}, weights);
    weights = (std::uint64_t{bits[0]} << 32 | bits[1]) ^ std::bit_cast<std::uint32_t>(step.gradient_scale);
  }
};

// A queue that works when it is waited for: the latest that a device can be.
class LateDevice {
 public:
  LateDevice(Model model, const LossScaler& scaler, std::int64_t next)
      : model_(std::move(model)),
        window_(scaler.window),
        scaled_(scaler.enabled),
        state_{scaler.scale, scaler.good_steps, next} {}

  StepRunner runner() {
    return {.launch = [this](std::int64_t step) { enqueue(step); },
            .next_result = [this] { return work(); },
            .diverged = [](std::int64_t step) { fail(str("diverged at ", step)); }};
  }
  const Model& model() const { return model_; }
  std::size_t most() const { return most_; }  // that were in the queue at once
  std::int64_t launches() const { return launches_; }
  bool idle() const { return queue_.empty(); }

 private:
  void enqueue(std::int64_t step) {
    queue_.push_back(step);
    most_ = std::max(most_, queue_.size());
    ++launches_;
  }
  StepResults work() {
    StepScalars step;
    step.draw = static_cast<std::uint64_t>(queue_.front());
    queue_.pop_front();
    if (scaled_) launch(device_->queue, ApplyLossScale{&step, &state_, 2});
    StepResults results = model_.run(step);
    if (scaled_) launch(device_->queue, UpdateLossScale{&state_, &results, &step, window_});
    if (results.update_scale != 0) model_.apply(step);
    return results;
  }
  std::unique_ptr<Device> device_ = make_device("cpu");
  Model model_;
  std::int64_t window_;
  bool scaled_;
  LossScale state_;
  std::deque<std::int64_t> queue_;
  std::size_t most_ = 0;
  std::int64_t launches_ = 0;
};

struct Outcome {
  std::vector<float> losses = {};
  double scale = 0;
  std::int64_t good_steps = 0;
  std::uint64_t weights = 0;
  std::string error = "";
  bool operator==(const Outcome&) const = default;
};

// Each update is launched when all is known of the one before.
Outcome one_by_one(Model model, LossScaler scaler, std::int64_t first, std::int64_t end) {
  Outcome outcome;
  for (std::int64_t i = first; i < end && outcome.error.empty();) {
    StepScalars step;
    step.draw = static_cast<std::uint64_t>(i);
    step.loss_gradient = static_cast<float>(scaler.scale / 2);
    step.gradient_scale = static_cast<float>(1 / scaler.scale);
    const StepResults results = model.run(step);
    const bool finite = std::isfinite(results.gradient_norm);
    if (!std::isfinite(results.loss) || (!finite && scaler.scale <= 1)) {
      outcome.error = str("diverged at ", i);
    } else if (scaler.update(results.gradient_norm)) {
      outcome.losses.push_back(results.loss);
      model.apply(step);
      ++i;
    }
  }
  outcome.scale = scaler.scale;
  outcome.good_steps = scaler.good_steps;
  outcome.weights = model.weights;
  return outcome;
}

// The same ahead of the device, settled before the updates of `stops`; what was known there must be what
// one_by_one() says of a run to there.
Outcome ahead(const Model& model, LossScaler scaler, std::int64_t first, std::int64_t end,
              const std::vector<std::int64_t>& stops) {
  const LossScaler initial = scaler;
  LateDevice device(model, scaler, first);
  Outcome outcome;
  try {
    RunAhead run(device.runner(), scaler, first, nullptr);
    while (run.next() < end) {
      const std::int64_t before = run.next();
      if (!run.launch()) continue;
      EXPECT_EQ(run.next(), before + 1);
      if (run.next() < end && std::find(stops.begin(), stops.end(), run.next()) == stops.end()) continue;
      run.settle();
      EXPECT_EQ(run.next(), before + 1);
      EXPECT_TRUE(device.idle());
      for (const StepResults& r : run.results()) outcome.losses.push_back(r.loss);
      outcome.scale = scaler.scale;
      outcome.good_steps = scaler.good_steps;
      outcome.weights = device.model().weights;
      EXPECT_EQ(outcome, one_by_one(model, initial, first, run.next())) << "update " << run.next();
    }
  } catch (const Error& error) { outcome.error = error.what(); }
  EXPECT_LE(device.most(), RunAhead::kLag + 1);
  return outcome;
}

LossScaler scaler_of(double scale, std::int64_t window) {
  return {.scale = scale, .good_steps = 0, .window = window, .enabled = true};
}

TEST(RunAhead, OverflowsLeaveNoTrace) {
  constexpr std::int64_t end = 12;
  for (const std::int64_t stop : {1, 2, 3, 4, 5, 9, 11})
    for (const std::int64_t first : {0, 1, 2, 3, 4, 8, 10, 11})  // update that overflows, and the next ones
      for (const std::int64_t more : {0, 1, 2, 3})
        for (const double limit : {500.0, 100.0, 4.0}) {  // halved once, several times
          Model model;
          for (std::int64_t i = first; i <= first + more; ++i)
            model.limits[i] = limit / static_cast<double>(i - first + 1);
          const Outcome got = ahead(model, scaler_of(1024, 4), 0, end, {stop});
          EXPECT_EQ(got, one_by_one(model, scaler_of(1024, 4), 0, end))
              << "updates " << first << " to " << first + more << ", settled before " << stop;
          EXPECT_EQ(got.losses.size(), 12u);
        }
}

TEST(RunAhead, AnyLimitsAnyStops) {
  std::size_t overflows = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    auto draw = [&, n = std::uint32_t{0}](std::uint32_t below) mutable {
      return philox4x32({seed, n++, 0, 0}, 9)[0] % below;
    };
    Model model;
    std::vector<std::int64_t> stops;
    for (std::int64_t i = 0; i < 40; ++i) {
      if (draw(3) == 0) model.limits[i] = std::ldexp(1.0, static_cast<int>(draw(12)) - 1);
      if (draw(5) == 0) stops.push_back(i);
    }
    const LossScaler scaler = scaler_of(std::ldexp(1.0, static_cast<int>(draw(14))), 1 + draw(6));
    const std::int64_t first = draw(5);
    const Outcome want = one_by_one(model, scaler, first, 40), got = ahead(model, scaler, first, 40, stops);
    EXPECT_EQ(got.error, want.error) << seed;
    if (!want.error.empty()) continue;
    EXPECT_EQ(got, want) << seed;
    overflows += want.scale < scaler.scale;
  }
  EXPECT_GT(overflows, 20u);
}

TEST(RunAhead, TheDeviceHasAlwaysSomethingToDo) {
  LossScaler scaler = scaler_of(8, 1000);
  LateDevice device({}, scaler, 0);
  RunAhead run(device.runner(), scaler, 0, nullptr);
  for (std::int64_t i = 1; i <= 20; ++i) {
    EXPECT_TRUE(run.launch());
    EXPECT_EQ(device.launches(), i);
    EXPECT_FALSE(device.idle());
  }
  EXPECT_EQ(device.most(), RunAhead::kLag + 1);
  EXPECT_EQ(run.results().size(), 20 - RunAhead::kLag);
  run.settle();
  EXPECT_EQ(run.results().size(), RunAhead::kLag);
  EXPECT_EQ(device.launches(), 20) << "nothing had to run again";
}

TEST(RunAhead, WithoutAScaleEachUpdateIsApplied) {
  LossScaler scaler;
  LateDevice device({.losses = {{3, kNan}}}, scaler, 0);
  RunAhead run(device.runner(), scaler, 0, nullptr);
  for (int i = 0; i < 30; ++i) EXPECT_TRUE(run.launch());
  run.settle();
  const std::vector<StepResults> results = run.results();
  ASSERT_EQ(results.size(), 30u);
  EXPECT_TRUE(std::isnan(results[3].loss));
  EXPECT_EQ(device.most(), RunAhead::kLagWithoutScale + 1);
  EXPECT_EQ(device.launches(), 30);
}

TEST(RunAhead, EndsWhereNoScaleMends) {
  Model always;
  always.limits[5] = 0;
  const Outcome got = ahead(always, scaler_of(64, 100), 0, 10, {});
  EXPECT_EQ(got.error, "diverged at 5");
  Model nan;
  nan.losses[6] = kInfinity;
  EXPECT_EQ(ahead(nan, scaler_of(64, 100), 0, 10, {}).error, "diverged at 6");
  // 1.5 is no power of two: below 1 the scaler itself gives up.
  EXPECT_CONTAINS(ahead(always, scaler_of(1.5, 100), 0, 10, {}).error,
                  "not finite at any loss scale down to 1");
}

TEST(RunAhead, ADeviceThatDecidesOtherwiseIsNoticed) {
  LossScaler scaler = scaler_of(64, 3);
  LateDevice device({}, scaler_of(64, 2), 0);
  RunAhead run(device.runner(), scaler, 0, nullptr);
  EXPECT_CONTAINS(error_of([&] {
                    for (int i = 0; i < 10; ++i) run.launch();
                  }),
                  "update 2 has left a loss scale of 128 on the device, it should be 64");
}

TEST(RunAhead, ALossThatIsNotFiniteEndsAtOnce) {
  for (const float loss : {kInfinity, kNan}) {
    LossScaler scaler = scaler_of(64, 100);
    LateDevice device({.losses = {{6, loss}}, .loss_alone = true}, scaler, 0);
    RunAhead run(device.runner(), scaler, 0, nullptr);
    EXPECT_EQ(error_of([&] {
                for (int i = 0; i < 20; ++i) run.launch();
              }),
              "diverged at 6");
    EXPECT_EQ(device.launches(), 7 + static_cast<std::int64_t>(RunAhead::kLag));
    EXPECT_EQ(run.results().size(), 6u);
  }
}

// The other one does not know of it, and must not be spoken to.
TEST(RunAhead, ALossOfOneRankIsInItsResults) {
  expect_cpu_ranks(2, [](CpuRank& r) {
    LossScaler scaler = scaler_of(64, 100);
    LateDevice device({.losses = {{6, r.rank() == 1 ? kNan : 2.0f}}, .loss_alone = true}, scaler, 0);
    RunAhead run(device.runner(), scaler, 0, &r.group);
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(run.launch());
    run.settle();
    std::vector<StepResults> results = run.results();
    ASSERT_EQ(results.size(), 10u);
    average_losses(r.group, results);
    for (std::size_t i = 0; i < results.size(); ++i) EXPECT_EQ(std::isfinite(results[i].loss), i != 6) << i;
  });
}

// A loss that is not finite on one rank alone: all see its gradient, and end at the same call.
TEST(RunAhead, RanksEndTogether) {
  expect_cpu_ranks(2, [](CpuRank& r) {
    Model model;
    model.limits = {{0, 100}, {4, 100}, {5, 10}, {9, 0}};
    model.losses = {{9, r.rank() == 1 ? kNan : 2.0f}};
    LossScaler scaler = scaler_of(1024, 3);
    LateDevice device(model, scaler, 0);
    RunAhead run(device.runner(), scaler, 0, &r.group);
    int calls = 0;
    EXPECT_EQ(error_of([&] {
                for (; run.next() < 20; ++calls) run.launch();
              }),
              "diverged at 9");
    for (const std::string& other : r.group.all_gather(str(calls, " ", device.launches(), " ", scaler.scale)))
      EXPECT_EQ(other, str(calls, " ", device.launches(), " ", scaler.scale));
    EXPECT_GT(scaler.scale, 1) << "it was the loss, not the scale";
  });
}

}  // namespace
}  // namespace weft
