// SPDX-License-Identifier: MIT
// `bench step`: the training step alone, without data, logs and checkpoints.
#include "train/trainer/step.h"

#include "kernels/diagnostics/launch_profile.h"
#include "src/config/conditions.h"
#include "src/config/config.h"
#include "src/config/read_config.h"
#include "src/parts/parts.h"
#include "train/bench/bench.h"
#include "train/bench/run_timer.h"
#include "train/bench/step_breakdown.h"
#include "train/program/json.h"
#include "train/program/loaded_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace weft {
namespace {
// eager runs, capture, and replays until clocks and caches have settled
constexpr int64_t kWarmUp = 5;

struct Timing {
  // from the start of the program's work to the end of the first step
  Laps start;
  std::vector<double> milliseconds;  // sorted
  double in_a_row = 0;               // milliseconds of a step among several, launched back to back

  double median() const { return milliseconds[milliseconds.size() / 2]; }
};

// Waits for each step and times it; then, on a GPU, launches as many back to back, as training
// does.
Timing time_steps(TrainStep& step, Device& device, const BatchSource& source, int64_t steps,
                  Laps& start) {
  Timing timing;
  const auto launch = [&](int64_t i) { step.run(source, i); };
  for (int64_t i = 0; i < kWarmUp + steps; ++i) {
    device.synchronize();
    const Stopwatch one(true);
    launch(i);
    device.synchronize();
    if (i == 0) start.lap("first step");
    if (i >= kWarmUp) timing.milliseconds.push_back(one.seconds() * 1e3);
  }
  const int64_t more = device.is_cuda() ? steps : 0;
  const Stopwatch row(true);
  for (int64_t i = 0; i < more; ++i) launch(kWarmUp + steps + i);
  device.synchronize();
  const double row_ms = row.seconds() * 1e3;
  const StepResults last = step.results().back();
  WEFT_CHECK(std::isfinite(last.loss),
             "bench step: the loss is not finite; its times mean nothing");
  std::ranges::sort(timing.milliseconds);
  timing.start = start;
  timing.in_a_row = more > 0 ? row_ms / static_cast<double>(more) : timing.median();
  return timing;
}

// Milliseconds of clipping and updating alone, mean over several launched back to back.
double time_update(TrainStep& step, Device& device, int64_t count) {
  device.synchronize();
  const Stopwatch row(true);
  for (int64_t i = 0; i < count; ++i) step.update();
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
  int64_t state_bytes = 0;     // of the optimizer, on each rank
  std::string optimizer = "";  // that, as text
  double update_ms = 0;
  double peak_flops = 0;  // FLOP/s of each rank
  std::optional<BenchExchange::Result> exchange = {};
  std::optional<StepBreakdown> breakdown = {};

  double tokens_per_s() const {
    return static_cast<double>(shape.tokens()) / timing.median() * 1e3;
  }

  double flops() const { return tokens_per_s() * flops_per_token(config.model, shape.context); }

  double mfu() const { return flops() / peak_flops / static_cast<double>(config.ranks); }
};

void write_json(const Report& r, std::ostream& out) {
  JsonMembers parts;
  for (const auto& [part, seconds] : r.timing.start.parts()) parts.emplace_back(part, seconds);
  const Timing& t = r.timing;
  JsonMembers members;
  const auto add = [&](const JsonMembers& more) {
    members.insert(members.end(), more.begin(), more.end());
  };
  add({{"config", r.config.name}, {"device", r.device.name}, {"dtype", name_of(r.dtype)}});
  add({{"context", r.shape.context}, {"tokens", r.shape.tokens()}, {"ms", t.median()}});
  add({{"ms_min", t.milliseconds.front()},
       {"ms_max", t.milliseconds.back()},
       {"ms_in_a_row", t.in_a_row}});
  add({{"tok_s", r.tokens_per_s()}, {"tflop_per_s", r.flops() * 1e-12}, {"mfu", r.mfu()}});
  add({{"peak_bytes", r.peak}, {"optimizer_bytes", r.state_bytes}, {"update_ms", r.update_ms}});
  add({{"first_step_s", t.start.last()},
       {"first_step_parts_s", JsonMember::Raw{json_object(parts)}}});
  members.emplace_back("ranks", r.config.ranks);
  out << "{" << json_members(members) << (r.exchange ? r.exchange->json : "")
      << (r.breakdown ? ", " + breakdown_json(*r.breakdown, r.timing.median()) : "") << "}"
      << std::endl;
}

void write_text(const Report& r, std::ostream& out) {
  out << r.config.name << " on " << r.device.description() << ", " << name_of(r.dtype) << "\n"
      << "step        " << r.timing.median() << " ms (median of " << r.timing.milliseconds.size()
      << ", " << r.timing.milliseconds.front() << " to " << r.timing.milliseconds.back() << "; "
      << r.timing.in_a_row << " in a row), " << r.shape.tokens() << " tokens of context "
      << r.shape.context << "\n"
      << "rate        " << static_cast<int64_t>(r.tokens_per_s()) << " tokens/s, "
      << r.flops() * 1e-12 << " TFLOP/s, MFU " << r.mfu() * 100
      << "% of the GEMM peak measured here\n"
      << "memory      peak " << bytes_text(r.peak) << "\n"
      << "optimizer   " << r.optimizer << "; update " << r.update_ms << " ms\n"
      << "first step  " << r.timing.start.last() << " s after the start: " << r.timing.start.text()
      << std::endl;
  if (r.exchange) out << r.exchange->text << std::endl;
  if (r.breakdown) print_breakdown(*r.breakdown, r.timing.median(), out);
}

// ---- where a step spends its time ----

constexpr int kSteps = 5;  // profiled, after one that fills the pool
// Clears of the caches first, some 10 ms: the host stays ahead. Else small kernels take as long as
// launches.
constexpr int kHeadStart = 160;

// The queue has a profile for as long as this lives.
class Profiled {
 public:
  explicit Profiled(Device& device)
      : device_(device) {
    std::visit([&](auto& queue) { profile_ = make_launch_profile(queue); }, device.queue);
    set(profile_.get());
  }

  Profiled& operator=(Profiled&&) = delete;  // nor copied

  ~Profiled() { set(nullptr); }

  std::vector<LaunchRecord> take() { return profile_->take(); }

 private:
  void set(LaunchProfile* profile) {
    std::visit([&](auto& queue) { queue.profile = profile; }, device_.queue);
  }

  Device& device_;
  std::unique_ptr<LaunchProfile> profile_;
};

// The launches of a step, each with its median time.
std::vector<LaunchRecord> medians(std::vector<std::vector<LaunchRecord>> steps) {
  std::vector<LaunchRecord> result = steps.front();
  for (const auto& step : steps)
    WEFT_CHECK(step.size() == result.size(), "two steps of ", result.size(), " and ", step.size(),
               " launches: nothing to compare");
  for (std::size_t i = 0; i < result.size(); ++i) {
    std::vector<double> times;
    for (const auto& step : steps) times.push_back(step[i].milliseconds);
    result[i].milliseconds = median(std::move(times));
  }
  return result;
}

double per_second(double amount, double milliseconds) {
  return milliseconds > 0 ? amount / milliseconds * 1e3 : 0;
}

// The kernels do not know how many pairs they have, the model does. Recomputed forward passes count
// again.
void add_attention_flops(std::vector<KernelGroup>& groups, const Config& config) {
  const StepShape shape = step_shape(config, 0);
  const double of_step =
      attention_flops_per_token(config.model, shape.context) * static_cast<double>(shape.tokens());
  const auto layers = static_cast<double>(config.model.layers * shape.accumulation);
  for (KernelGroup& g : groups) {
    const double times = static_cast<double>(g.launches) / layers;
    if (g.kernel == AttentionForward::kName) g.flops = of_step / 3 * times;
    if (g.kernel == AttentionBackward::kName) g.flops = of_step * 2 / 3 * times;
  }
}

double share(const KernelGroup& g) {
  return g.milliseconds > 0 ? g.roofline_ms / g.milliseconds : 0;
}

BenchExchange& bench_exchange() {
  static BenchExchange exchange;
  return exchange;
}
}  // namespace

void set_bench_exchange(BenchExchange exchange) { bench_exchange() = exchange; }

void bench_step(const BenchStepOptions& options, Processes& group, std::ostream& out) {
  Laps start;
  if (options.steps < 1) fail("--steps must be at least 1, got ", options.steps);
  if (group.size() > 1 && !bench_exchange().measure)
    fail("bench step: several processes: ", absent_part_text("exchange"));
  Config config = load_config(options.config, options.overrides);
  config.ranks = group.size();
  check_config(config);
  const auto device = start.lap("device", make_device(group.device(options.device)));
  const auto parallel = make_data_parallel(*device, group);
  const DType dtype = dtype_on(*device, config);
  check_memory(config, *device);
  ParameterStore store;
  const auto model = make_model(config, store, *device);
  store.allocate(*device, dtype, config.seed, true, config.train.ema_decay > 0,
                 parallel->sharing(config.train, dtype));
  start.lap("weights");
  const std::vector<int64_t>& axes = config.model.position_axes;
  const TokenDataset data = TokenDataset::random(
      16 * config.model.context, config.model.vocab, config.seed,
      asks_for_items(config) ? ImageShape{axes.at(0), axes.at(1), axes.at(2)} : ImageShape{});
  const BatchSource source(config, data, config.data.mix.empty() ? nullptr : &data);
  auto shared = parallel->share_step(store, config.train);
  auto step = std::make_unique<TrainStep>(*device, *model, store, config, shared.get());
  Report report{config,
                *device,
                dtype,
                step_shape(config, 0),
                time_steps(*step, *device, source, options.steps, start),
                device->pool->peak(),
                store.state_bytes(),
                store.state_text(),
                time_update(*step, *device, std::max(options.steps, kWarmUp))};
  report.peak_flops = device->peak_flops(dtype);
  step.reset();  // its graphs hold memory
  shared.reset();
  device->pool->trim();
  if (group.size() > 1)
    report.exchange = bench_exchange().measure(*device, *parallel, *model, store, config, data,
                                               std::max<int64_t>(options.steps / 4, 2));
  device->pool->trim();
  const auto lockstep =
      group.size() > 1 ? bench_exchange().lockstep(*parallel, store, config.train) : nullptr;
  if (options.breakdown)
    report.breakdown = measure_breakdown(*device, *model, store, config, source, lockstep.get());
  options.json ? write_json(report, out) : write_text(report, out);
}

std::vector<KernelGroup> group_launches(const std::vector<LaunchRecord>& launches) {
  std::map<std::pair<std::string, std::string>, KernelGroup> groups;
  for (const LaunchRecord& launch : launches) {
    KernelGroup& g = groups[{launch.kernel, launch.cost.shape}];
    g.kernel = launch.kernel;
    g.shape = launch.cost.shape;
    g += {{}, {}, 1, launch.milliseconds, launch.cost.bytes, launch.cost.flops};
  }
  std::vector<KernelGroup> sorted;
  for (auto& [key, group] : groups) sorted.push_back(std::move(group));
  std::ranges::sort(sorted, std::greater(), &KernelGroup::milliseconds);
  return sorted;
}

StepBreakdown measure_breakdown(Device& device, Model& model, ParameterStore& store,
                                const Config& config, const BatchSource& source,
                                SharedStep* shared) {
  Config eager = config;
  eager.train.graph = false;
  TrainStep step(device, model, store, eager, shared);
  const auto run = [&](int64_t i) { step.run(source, i); };
  run(0);
  const auto flush = l2_flush(device);
  std::vector<std::vector<LaunchRecord>> launches;
  {
    Profiled profiled(device);
    for (int i = 0; i < kSteps; ++i) {
      for (int clear = 0; device.is_cuda() && clear < kHeadStart; ++clear) flush();
      run(i + 1);
      launches.push_back(profiled.take());
    }
  }
  StepBreakdown result;
  result.copy_bandwidth = device.copy_bandwidth();
  result.peak_flops = device.peak_flops(dtype_on(device, config));
  result.groups = group_launches(medians(std::move(launches)));
  add_attention_flops(result.groups, config);
  for (KernelGroup& g : result.groups)
    g.roofline_ms = 1e3 * std::max(g.bytes / result.copy_bandwidth, g.flops / result.peak_flops);
  return result;
}

void print_breakdown(const StepBreakdown& b, double step_ms, std::ostream& out) {
  const Columns columns = {
      {"kernel", 56},     {"launches", 9, 0}, {"ms", 10, 3},          {"%", 7, 1},
      {"TFLOP/s", 10, 3}, {"TB/s", 8, 3},     {"roofline ms", 13, 3}, {"% of roofline", 15, 1}};
  print_head(out, columns);
  KernelGroup all{"all kernels"};
  const auto row = [&](const KernelGroup& g) {
    print_row(out, columns,
              {g.shape.empty() ? g.kernel : g.kernel + " (" + g.shape + ")",
               static_cast<double>(g.launches), g.milliseconds, 100 * g.milliseconds / step_ms,
               per_second(g.flops, g.milliseconds) * 1e-12,
               per_second(g.bytes, g.milliseconds) * 1e-12, g.roofline_ms, 100 * share(g)});
  };
  for (const KernelGroup& g : b.groups) row(g), all += g;
  row(all);
  const double gap_ms = step_ms - all.milliseconds;
  print_row(out, {{"", 65}, {"", 10, 3}, {"", 7, 1}},
            {"gaps: launches, copies, clears", gap_ms, 100 * gap_ms / step_ms});
  out << "measured here: copy bandwidth " << fixed_text(b.copy_bandwidth * 1e-12, 3)
      << " TB/s, GEMM " << fixed_text(b.peak_flops * 1e-12, 3) << " TFLOP/s" << std::endl;
}

std::string breakdown_json(const StepBreakdown& b, double step_ms) {
  std::string kernels;
  KernelGroup all;
  for (const KernelGroup& g : b.groups) {
    all += g;
    const double tflops = per_second(g.flops, g.milliseconds) * 1e-12;
    const double tbps = per_second(g.bytes, g.milliseconds) * 1e-12;
    const JsonMembers members = {{"kernel", g.kernel},           {"shape", g.shape},
                                 {"launches", g.launches},       {"ms", g.milliseconds},
                                 {"tflop_per_s", tflops},        {"tb_per_s", tbps},
                                 {"roofline_ms", g.roofline_ms}, {"roofline_share", share(g)}};
    kernels += (kernels.empty() ? "" : ", ") + json_object(members);
  }
  return json_members({{"copy_tb_per_s", b.copy_bandwidth * 1e-12},
                       {"gemm_tflop_per_s", b.peak_flops * 1e-12},
                       {"kernel_ms", all.milliseconds},
                       {"gap_ms", step_ms - all.milliseconds},
                       {"roofline_ms", all.roofline_ms},
                       {"kernels", JsonMember::Raw{"[" + kernels + "]"}}});
}
}  // namespace weft
