// SPDX-License-Identifier: MIT
// `bench step`: the training step alone, without data, logs and checkpoints.
#include "train/trainer/step.h"
#include "train/bench/bench.h"
#include "train/bench/step_breakdown.h"
#include "train/program/json.h"
#include "train/program/loaded_model.h"

namespace weft {
namespace {

constexpr std::int64_t kWarmUp = 5;  // eager runs, capture, and replays until clocks and caches have settled

struct Timing {
  Laps start;                        // from the start of the program's work to the end of the first step
  std::vector<double> milliseconds;  // sorted
  double in_a_row = 0;               // milliseconds of a step among several, launched back to back
  double median() const { return milliseconds[milliseconds.size() / 2]; }
};

// Waits for each step and times it; then, on a GPU, launches as many back to back, as training does.
Timing time_steps(TrainStep& step, Device& device, const BatchSource& source, std::int64_t steps,
                  Laps& start) {
  Timing timing;
  const auto launch = [&](std::int64_t i) { step.run(source, i); };
  for (std::int64_t i = 0; i < kWarmUp + steps; ++i) {
    device.synchronize();
    const Stopwatch one(true);
    launch(i);
    device.synchronize();
    if (i == 0) start.lap("first step");
    if (i >= kWarmUp) timing.milliseconds.push_back(one.seconds() * 1e3);
  }
  const std::int64_t more = device.is_cuda() ? steps : 0;
  const Stopwatch row(true);
  for (std::int64_t i = 0; i < more; ++i) launch(kWarmUp + steps + i);
  device.synchronize();
  const double row_ms = row.seconds() * 1e3;
  const StepResults last = step.results().back();
  WEFT_CHECK(std::isfinite(last.loss), "bench step: the loss is not finite; its times mean nothing");
  std::sort(timing.milliseconds.begin(), timing.milliseconds.end());
  timing.start = start;
  timing.in_a_row = more > 0 ? row_ms / static_cast<double>(more) : timing.median();
  return timing;
}

// Milliseconds of clipping and updating alone, mean over several launched back to back.
double time_update(TrainStep& step, Device& device, std::int64_t count) {
  device.synchronize();
  const Stopwatch row(true);
  for (std::int64_t i = 0; i < count; ++i) step.update();
  device.synchronize();
  return row.seconds() * 1e3 / static_cast<double>(count);
}

// All that is printed about a config.
struct Report {
  const Config& config;
  const Device& device;
  DType dtype;
  StepShape shape;
  Timing timing;
  std::size_t peak = 0;
  std::int64_t state_bytes = 0;  // of the optimizer, on each rank
  std::string optimizer = "";    // that, as text
  double update_ms = 0;
  double peak_flops = 0;  // FLOP/s of each rank
  std::optional<Exchange> exchange = {};
  std::optional<StepBreakdown> breakdown = {};

  double tokens_per_s() const { return static_cast<double>(shape.tokens()) / timing.median() * 1e3; }
  double flops() const { return tokens_per_s() * flops_per_token(config.model, shape.context); }
  double mfu() const { return flops() / peak_flops / static_cast<double>(config.ranks); }
};

void write_json(const Report& r, std::ostream& out) {
  JsonMembers parts;
  for (const auto& [part, seconds] : r.timing.start.parts()) parts.emplace_back(part, seconds);
  const Timing& t = r.timing;
  JsonMembers members;
  const auto add = [&](const JsonMembers& more) { members.insert(members.end(), more.begin(), more.end()); };
  add({{"config", r.config.name}, {"device", r.device.name}, {"dtype", name_of(r.dtype)}});
  add({{"context", r.shape.context}, {"tokens", r.shape.tokens()}, {"ms", t.median()}});
  add({{"ms_min", t.milliseconds.front()}, {"ms_max", t.milliseconds.back()}, {"ms_in_a_row", t.in_a_row}});
  add({{"tok_s", r.tokens_per_s()}, {"tflop_per_s", r.flops() * 1e-12}, {"mfu", r.mfu()}});
  add({{"peak_bytes", r.peak}, {"optimizer_bytes", r.state_bytes}, {"update_ms", r.update_ms}});
  add({{"first_step_s", t.start.last()}, {"first_step_parts_s", JsonMember::Raw{json_object(parts)}}});
  members.emplace_back("ranks", r.config.ranks);
  out << "{" << json_members(members) << (r.exchange ? exchange_json(*r.exchange) : "")
      << (r.breakdown ? ", " + breakdown_json(*r.breakdown, r.timing.median()) : "") << "}" << std::endl;
}

void write_text(const Report& r, std::ostream& out) {
  out << r.config.name << " on " << r.device.description() << ", " << name_of(r.dtype) << "\n"
      << "step        " << r.timing.median() << " ms (median of " << r.timing.milliseconds.size() << ", "
      << r.timing.milliseconds.front() << " to " << r.timing.milliseconds.back() << "; " << r.timing.in_a_row
      << " in a row), " << r.shape.tokens() << " tokens of context " << r.shape.context << "\n"
      << "rate        " << static_cast<std::int64_t>(r.tokens_per_s()) << " tokens/s, " << r.flops() * 1e-12
      << " TFLOP/s, MFU " << r.mfu() * 100 << "% of the GEMM peak measured here\n"
      << "memory      peak " << bytes_text(r.peak) << "\n"
      << "optimizer   " << r.optimizer << "; update " << r.update_ms << " ms\n"
      << "first step  " << r.timing.start.last() << " s after the start: " << r.timing.start.text()
      << std::endl;
  if (r.exchange) out << exchange_text(*r.exchange, r.config.ranks) << std::endl;
  if (r.breakdown) print_breakdown(*r.breakdown, r.timing.median(), out);
}

}  // namespace

void bench_step(const BenchStepOptions& options, ProcessGroup& group, std::ostream& out) {
  Laps start;
  if (options.steps < 1) fail("--steps must be at least 1, got ", options.steps);
  Config config = load_config(options.config, options.overrides);
  config.ranks = group.size();
  check_config(config);
  const auto device = start.lap("device", make_device(rank_device(group.world(), options.device)));
  const auto communicator = group.size() > 1 ? make_communicator(*device, group) : nullptr;
  const DType dtype = dtype_on(*device, config);
  check_memory(config, *device);
  ParameterStore store;
  const auto model = make_model(config, store, *device);
  store.allocate(*device, dtype, config.seed, true, config.train.ema_decay > 0,
                 sharding_of(config.train, communicator.get(), dtype));
  start.lap("weights");
  const bool augmented = !augmentations(config).empty() || config.augment.flip;
  const TokenDataset data = TokenDataset::random(16 * config.model.context, config.model.vocab, config.seed,
                                                 augmented ? image_shape(config) : ImageShape{});
  const BatchSource source(config, data, config.data.mix.empty() ? nullptr : &data);
  auto step = std::make_unique<TrainStep>(*device, *model, store, config, communicator.get());
  Report report{config,
                *device,
                dtype,
                step_shape(config, 0),
                time_steps(*step, *device, source, options.steps, start),
                device->pool->peak(),
                store.state_bytes(),
                optimizer_text(store, config.ranks),
                time_update(*step, *device, std::max(options.steps, kWarmUp))};
  report.peak_flops = device->peak_flops(dtype);
  step.reset();  // its graphs hold memory
  device->pool->trim();
  if (communicator)
    report.exchange = measure_exchange(*device, group, *communicator, *model, store, config, data,
                                       std::max<std::int64_t>(options.steps / 4, 2));
  device->pool->trim();
  const auto lockstep = communicator ? make_lockstep(*device, *communicator) : nullptr;
  if (options.breakdown)
    report.breakdown = measure_breakdown(*device, *model, store, config, source, lockstep.get());
  options.json ? write_json(report, out) : write_text(report, out);
}

}  // namespace weft
