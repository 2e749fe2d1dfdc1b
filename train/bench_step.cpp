// SPDX-License-Identifier: MIT
// `bench step`: the training step alone, without data, logs and checkpoints.
#include "train/bench_step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <ostream>

#include "train/loaded_model.h"
#include "train/step_breakdown.h"
#include "train/trainer_report.h"
#include "train/trainer_step.h"

namespace weft {
namespace {

constexpr std::int64_t kWarmUp = 5;  // eager runs, capture, and replays until clocks and caches have settled

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

struct Timing {
  double first_s = 0;                // from the start of the program's work to the end of the first step
  std::vector<double> milliseconds;  // sorted
  double in_a_row = 0;               // milliseconds of one of several steps that are not waited for
  double median() const { return milliseconds[milliseconds.size() / 2]; }
};

// Each step is waited for, so that its time is its own; then, on a GPU, as many are launched in a row, as
// training does.
Timing time_steps(TrainStep& step, Device& device, const Config& config, const BatchSource& source,
                  std::int64_t steps, const Stopwatch& since_start) {
  Timing timing;
  const auto launch = [&](std::int64_t i) {
    step.run(source, i, step_scalars(config, i, i, config.precision == "f16" ? config.train.loss_scale : 1));
  };
  for (std::int64_t i = 0; i < kWarmUp + steps; ++i) {
    device.synchronize();
    const Stopwatch one;
    launch(i);
    device.synchronize();
    if (i == 0) timing.first_s = since_start.seconds();
    if (i >= kWarmUp) timing.milliseconds.push_back(one.seconds() * 1e3);
  }
  const std::int64_t more = device.is_cuda() ? steps : 0;
  const Stopwatch row;
  for (std::int64_t i = 0; i < more; ++i) launch(kWarmUp + steps + i);
  device.synchronize();
  const double row_ms = row.seconds() * 1e3;
  const StepResults last = step.results().back();
  WEFT_CHECK(std::isfinite(last.loss), "bench step: the loss is not finite; its times mean nothing");
  std::sort(timing.milliseconds.begin(), timing.milliseconds.end());
  timing.in_a_row = more > 0 ? row_ms / static_cast<double>(more) : timing.median();
  return timing;
}

}  // namespace

void bench_step(const BenchStepOptions& options, std::ostream& out) {
  const Stopwatch since_start;
  if (options.steps < 1) fail(str("--steps must be at least 1, got ", options.steps));
  const Config config = load_config(options.config, options.overrides);
  const auto device = make_device(options.device);
  const DType dtype = dtype_on(*device, config);
  check_memory(config, *device);
  ParameterStore store;
  const auto model = make_model(config, store, *device);
  store.allocate(*device, dtype, config.seed, true, config.train.ema_decay > 0);
  const bool augmented = !augmentations(config).empty() || config.augment.flip;
  const TokenDataset data = TokenDataset::random(16 * config.model.context, config.model.vocab, config.seed,
                                                 augmented ? image_shape(config) : ImageShape{});
  const BatchSource source(config, data, config.data.mix.empty() ? nullptr : &data);
  auto step = std::make_unique<TrainStep>(*device, *model, store, config);
  const Timing timing = time_steps(*step, *device, config, source, options.steps, since_start);

  const StepShape shape = step_shape(config, 0);
  const std::size_t peak = device->pool->peak();
  const double tokens_per_s = static_cast<double>(shape.tokens()) / timing.median() * 1e3;
  const double flops = tokens_per_s * flops_per_token(config.model, shape.context);
  const double share = flops / device->matrix_rate(dtype);
  std::optional<StepBreakdown> breakdown;
  if (options.breakdown) {
    step.reset();  // its graphs hold memory that the eager step needs
    device->pool->trim();
    breakdown = measure_breakdown(*device, *model, store, config, source);
  }
  if (options.json) {
    out << "{\"config\": \"" << config.name << "\", \"device\": \"" << device->name << "\", \"dtype\": \""
        << name_of(dtype) << "\", \"context\": " << shape.context << ", \"tokens\": " << shape.tokens()
        << ", \"ms\": " << timing.median() << ", \"ms_min\": " << timing.milliseconds.front()
        << ", \"ms_max\": " << timing.milliseconds.back() << ", \"ms_in_a_row\": " << timing.in_a_row
        << ", \"tok_s\": " << tokens_per_s << ", \"tflop_per_s\": " << flops * 1e-12
        << ", \"matrix_share\": " << share << ", \"peak_bytes\": " << peak
        << ", \"first_step_s\": " << timing.first_s
        << (breakdown ? ", " + breakdown_json(*breakdown, timing.median()) : "") << "}" << std::endl;
    return;
  }
  out << config.name << " on " << device->description() << ", " << name_of(dtype) << "\n"
      << "step        " << timing.median() << " ms (median of " << options.steps << ", "
      << timing.milliseconds.front() << " to " << timing.milliseconds.back() << "; " << timing.in_a_row
      << " in a row), " << shape.tokens() << " tokens of context " << shape.context << "\n"
      << "rate        " << static_cast<std::int64_t>(tokens_per_s) << " tokens/s, " << flops * 1e-12
      << " TFLOP/s, " << share * 100 << "% of the matrix rate measured here\n"
      << "memory      peak " << bytes_text(peak) << "\n"
      << "first step  " << timing.first_s << " s after the start" << std::endl;
  if (breakdown) print_breakdown(*breakdown, timing.median(), out);
}

}  // namespace weft
