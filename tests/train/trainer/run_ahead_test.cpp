// SPDX-License-Identifier: MIT
// Updates launched ahead: what they report, how many are in flight, and that a loss scale counted
// on the device is that of PyTorch's GradScaler.
#include "train/trainer/run_ahead.h"

#include "kernels/philox.h"
#include "src/device.h"
#include "tests/testing.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace weft {
namespace {
constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                kNan = std::numeric_limits<float>::quiet_NaN();

// What an update does, but for the sizes: its loss is a function of the weights and of its number,
// the weights are then another function of both. Its gradient overflows where loss_gradient is
// above a limit.
struct ToyModel {
  std::map<int64_t, double> limits = {};  // by update; others: none
  uint64_t weights = 1;

  StepResults run(const StepScalars& step) const {
    const auto limit = limits.find(static_cast<int64_t>(step.draw));
    const bool overflow =
        limit != limits.end() && static_cast<double>(step.loss_gradient) > limit->second;
    const uint32_t bits = philox4x32({static_cast<uint32_t>(step.draw), 0, 0, 0}, weights)[0];
    return {
        .loss = static_cast<float>(bits) * 0x1p-32f,
        .gradient_norm = overflow ? kNan : 1,
        .update_scale = overflow ? 0.0f : 1.0f,
    };
  }

  void apply(const StepScalars& step) {
    const Philox4 bits = philox4x32({static_cast<uint32_t>(step.draw), 1, 0, 0}, weights);
    weights = (uint64_t{bits[0]} << 32 | bits[1]) ^ std::bit_cast<uint32_t>(step.gradient_scale) ^
              std::bit_cast<uint32_t>(step.beta1_correction);
  }
};

struct Outcome {
  std::vector<float> losses = {};
  std::vector<int64_t> skipped = {};
  double scale = 0;
  int64_t growth = 0;
  uint64_t weights = 0;
  bool operator==(const Outcome&) const = default;
};

constexpr double kBeta1 = 0.9;

// GradScaler by the book: the host waits for each update, and its optimizer counts those that it
// ran.
Outcome by_the_book(ToyModel model, LossScale start, int64_t window, int64_t first, int64_t end) {
  Outcome o{.scale = start.scale, .growth = start.good_steps};
  int64_t updates = first - start.skipped;
  for (int64_t i = first; i < end; ++i) {
    StepScalars step{.draw = static_cast<uint64_t>(i)};
    step.loss_gradient = static_cast<float>(o.scale / 2);
    step.gradient_scale = static_cast<float>(1 / o.scale);
    const StepResults results = model.run(step);
    o.losses.push_back(results.loss);
    if (std::isfinite(results.gradient_norm)) {
      ++updates;
      step.beta1_correction =
          static_cast<float>(1 - std::pow(kBeta1, static_cast<double>(updates)));
      model.apply(step);
      if (++o.growth == window) o.scale *= 2, o.growth = 0;
    } else {
      o.skipped.push_back(i);
      o.scale *= 0.5, o.growth = 0;
    }
  }
  o.weights = model.weights;
  return o;
}

// The same as the device does it: nothing comes back but the results.
Outcome on_the_device(ToyModel model, LossScale state, int64_t window, int64_t first, int64_t end) {
  const auto device = make_device("cpu");
  Outcome o;
  for (int64_t i = first; i < end; ++i) {
    StepScalars step{.draw = static_cast<uint64_t>(i)};
    launch(device->queue, ApplyLossScale{&step, &state, 2});
    StepResults results = model.run(step);
    launch(device->queue, UpdateLossScale{&state, &results, &step, window, kBeta1});
    EXPECT_EQ(results.loss_scale, static_cast<float>(state.scale));
    if (results.update_scale != 0) model.apply(step);
    o.losses.push_back(results.loss);
    if (results.update_scale == 0) o.skipped.push_back(i);
  }
  o.scale = state.scale;
  o.growth = state.good_steps;
  o.weights = model.weights;
  return o;
}

TEST(LossScale, OverflowsAreSkippedAsGradScalerSkipsThem) {
  std::size_t overflows = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    auto draw = [&, n = uint32_t{0}](uint32_t below) mutable {
      return philox4x32({seed, n++, 0, 0}, 9)[0] % below;
    };
    ToyModel model;
    for (int64_t i = 0; i < 40; ++i)
      if (draw(3) == 0) model.limits[i] = std::ldexp(1.0, static_cast<int>(draw(17)) - 1);
    // As training starts, and anywhere.
    const LossScale start = seed % 2 == 0 ? LossScale{.scale = 65536}
                                          : LossScale{std::ldexp(1.0, static_cast<int>(draw(14))),
                                                      0, static_cast<int>(draw(3))};
    const int64_t window = seed % 3 == 0 ? 1000 : 1 + draw(6), first = 5;
    const Outcome want = by_the_book(model, start, window, first, 40);
    EXPECT_EQ(on_the_device(model, start, window, first, 40), want) << seed;
    overflows += want.skipped.size();
  }
  EXPECT_GT(overflows, 1000u);
}

// An update that goes on from a state in the middle is the one of the whole run.
TEST(LossScale, GoesOnFromItsState) {
  ToyModel model;
  for (int64_t i = 0; i < 20; i += 3) model.limits[i] = 3000;
  for (const int64_t stop : {1, 3, 4, 10}) {
    ToyModel parts = model;
    LossScale state{.scale = 65536};
    const auto device = make_device("cpu");
    for (int64_t i = 0; i < stop; ++i) {
      StepScalars step{.draw = static_cast<uint64_t>(i)};
      launch(device->queue, ApplyLossScale{&step, &state, 2});
      StepResults results = parts.run(step);
      launch(device->queue, UpdateLossScale{&state, &results, &step, 4, kBeta1});
      if (results.update_scale != 0) parts.apply(step);
    }
    const Outcome whole = on_the_device(model, {.scale = 65536}, 4, 0, 20),
                  rest = on_the_device(parts, state, 4, stop, 20);
    EXPECT_EQ(rest.weights, whole.weights) << stop;
    EXPECT_EQ(rest.scale, whole.scale) << stop;
  }
}

TEST(RunAhead, WhatCannotGoOn) {
  const auto diverged = [](float loss, float norm, float scale, bool scaled) {
    return has_diverged({.loss = loss, .gradient_norm = norm, .loss_scale = scale}, scaled);
  };
  for (const bool scaled : {false, true}) {
    EXPECT_FALSE(diverged(2, 1, 64, scaled));
    for (const float bad : {kInfinity, kNan}) {
      EXPECT_TRUE(diverged(bad, 1, 64, scaled)) << "a loss beside a finite gradient";
      EXPECT_TRUE(diverged(bad, bad, 64, scaled));
      EXPECT_EQ(diverged(2, bad, 64, scaled), !scaled) << "an overflow is skipped";
      EXPECT_EQ(diverged(2, bad, 1, scaled), !scaled) << "it had a scale of 2";
      EXPECT_TRUE(diverged(2, bad, 0.5, scaled)) << "it had the smallest scale";
      EXPECT_TRUE(diverged(2, bad, 0.75, scaled)) << "no power of two";
    }
  }
}

// A device that takes `seconds` for each micro-batch, as far as its marks say.
class SlowDevice : public Device {
 public:
  explicit SlowDevice(double seconds)
      : cpu_(make_device("cpu")),
        seconds_(seconds) {
    pool = cpu_->pool;
    host_pool = cpu_->host_pool;
  }

  int64_t in_flight() const {
    return std::count_if(done_.begin(), done_.end(), [](auto when) { return when > Clock::now(); });
  }

  void upload(const TensorView& dst, const void* src) override { cpu_->upload(dst, src); }

  void download(void* dst, const TensorView& src) override { cpu_->download(dst, src); }

  void upload_async(void* dst, const void* src, std::size_t n) override {
    cpu_->upload_async(dst, src, n);
  }

  void zero(const TensorView& dst) override { cpu_->zero(dst); }

  void synchronize() override {}

  std::unique_ptr<QueueMark> make_mark() override { return std::make_unique<Mark>(*this); }

  std::string description() const override { return "slow"; }

  std::size_t memory_free() const override { return cpu_->memory_free(); }

 private:
  using Clock = std::chrono::steady_clock;

  struct Mark : QueueMark {
    explicit Mark(SlowDevice& d)
        : device(d) {}

    void record() override {
      const auto pause = std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(device.seconds_));
      const auto before =
          device.done_.empty() ? Clock::now() : std::max(device.done_.back(), Clock::now());
      device.done_.push_back(done = before + pause);
    }

    void wait() override { std::this_thread::sleep_until(done); }

    SlowDevice& device;
    Clock::time_point done{};
  };

  std::unique_ptr<Device> cpu_;
  double seconds_;
  std::vector<Clock::time_point> done_;
};

// Updates of two micro-batches.
class Updates {
 public:
  Updates(RunAhead& ahead, Device& device)
      : ahead_(ahead),
        results_(*device.pool, {4}, DType::f32) {
    ctx_.queue = &device.queue;
    ctx_.pool = device.pool.get();
  }

  void run(float loss) {
    for (const int64_t micro : {0, 1}) {
      ahead_.make_room(micro);
      float* out = results_.view().as<float>();
      out[0] = loss + static_cast<float>(micro), out[1] = 10 * loss, out[2] = 1, out[3] = 64;
      ahead_.record(ctx_, micro, results_);
    }
  }

 private:
  RunAhead& ahead_;
  Tensor results_;
  Ctx ctx_;
};

TEST(RunAhead, HasTheResultsOfEveryUpdate) {
  const auto device = make_device("cpu");
  RunAhead ahead(*device, 2);
  Updates updates(ahead, *device);
  EXPECT_THROW(ahead.next_result(), Error);
  for (int i = 0; i < 50; ++i) updates.run(static_cast<float>(i));
  EXPECT_EQ(ahead.next_result().loss, 0.5) << "the mean over micro-batches";
  const std::vector<StepResults> rest = ahead.results();
  ASSERT_EQ(rest.size(), 49u);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    EXPECT_EQ(rest[i].loss, static_cast<float>(i) + 1.5f);
    EXPECT_EQ(rest[i].gradient_norm, static_cast<float>(10 * (i + 1)));
  }
  EXPECT_TRUE(ahead.results().empty());
}

TEST(RunAhead, TheDeviceHasAlwaysSomethingToDo) {
  SlowDevice device(0.01);
  RunAhead ahead(device, 2);
  Updates updates(ahead, device);
  for (int i = 0; i < 3; ++i) updates.run(1);
  for (int i = 0; i < 30; ++i) {
    updates.run(1);
    EXPECT_GT(device.in_flight(), 0);
  }
  EXPECT_GE(device.in_flight(), 2 * RunAhead::kMost - 2);
  EXPECT_LE(device.in_flight(), 2 * RunAhead::kMost);
}

// Whoever stops a run waits for what is in flight.
TEST(RunAhead, SlowUpdatesAreFewInFlight) {
  SlowDevice device(0.2);
  RunAhead ahead(device, 2);
  Updates updates(ahead, device);
  updates.run(1);
  EXPECT_LE(device.in_flight(), 1)
      << "nothing is known of the first update: its micro-batches go one by one";
  for (int i = 0; i < 7; ++i) updates.run(1);
  EXPECT_LE(device.in_flight(), 2 * static_cast<int64_t>(RunAhead::kSeconds / 0.4));
  EXPECT_GE(device.in_flight(), 6);
}
}  // namespace
}  // namespace weft
