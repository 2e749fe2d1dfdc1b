// SPDX-License-Identifier: MIT
#include "train/bench/step_breakdown.h"

#include "train/bench/run_timer.h"
#include "train/program/json.h"
#include "train/program/loaded_model.h"
#include "train/trainer/step.h"

namespace weft {
namespace {

constexpr int kSteps = 5;  // profiled, after one that fills the pool
// The device first clears the caches this many times, some 10 ms, so that the host stays ahead of it:
// otherwise a small kernel takes as long as its launch.
constexpr int kHeadStart = 160;

// The queue has a profile for as long as this lives.
class Profiled {
 public:
  explicit Profiled(Device& device) : device_(device) {
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

// The kernels do not know how many pairs they have, the model does. Recomputed forward passes count again.
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

double share(const KernelGroup& g) { return g.milliseconds > 0 ? g.roofline_ms / g.milliseconds : 0; }

}  // namespace

std::vector<KernelGroup> group_launches(const std::vector<LaunchRecord>& launches) {
  std::map<std::pair<std::string, std::string>, KernelGroup> groups;
  for (const LaunchRecord& launch : launches) {
    KernelGroup& g = groups[{launch.kernel, launch.cost.shape}];
    g.kernel = launch.kernel;
    g.shape = launch.cost.shape;
    ++g.launches;
    g.milliseconds += launch.milliseconds;
    g.bytes += launch.cost.bytes;
    g.flops += launch.cost.flops;
  }
  std::vector<KernelGroup> sorted;
  for (auto& [key, group] : groups) sorted.push_back(std::move(group));
  std::ranges::sort(sorted, std::greater(), &KernelGroup::milliseconds);
  return sorted;
}

StepBreakdown measure_breakdown(Device& device, Model& model, ParameterStore& store, const Config& config,
                                const BatchSource& source, Communicator* communicator) {
  Config eager = config;
  eager.train.graph = false;
  TrainStep step(device, model, store, eager, communicator);
  const auto run = [&](std::int64_t i) { step.run(source, i); };
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
  KernelGroup all;
  all.kernel = "all kernels";
  const auto row = [&](const KernelGroup& g) {
    print_row(out, columns,
              {g.shape.empty() ? g.kernel : g.kernel + " (" + g.shape + ")", static_cast<double>(g.launches),
               g.milliseconds, 100 * g.milliseconds / step_ms, per_second(g.flops, g.milliseconds) * 1e-12,
               per_second(g.bytes, g.milliseconds) * 1e-12, g.roofline_ms, 100 * share(g)});
  };
  for (const KernelGroup& g : b.groups) {
    row(g);
    all.launches += g.launches;
    all.milliseconds += g.milliseconds;
    all.bytes += g.bytes;
    all.flops += g.flops;
    all.roofline_ms += g.roofline_ms;
  }
  row(all);
  const double gap_ms = step_ms - all.milliseconds;
  print_row(out, {{"", 65}, {"", 10, 3}, {"", 7, 1}},
            {"gaps: launches, copies, clears", gap_ms, 100 * gap_ms / step_ms});
  out << "measured here: copy bandwidth " << fixed_text(b.copy_bandwidth * 1e-12, 3) << " TB/s, GEMM "
      << fixed_text(b.peak_flops * 1e-12, 3) << " TFLOP/s" << std::endl;
}

std::string breakdown_json(const StepBreakdown& b, double step_ms) {
  std::string kernels;
  double kernel_ms = 0, roofline_ms = 0;
  for (const KernelGroup& g : b.groups) {
    kernel_ms += g.milliseconds;
    roofline_ms += g.roofline_ms;
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
                       {"kernel_ms", kernel_ms},
                       {"gap_ms", step_ms - kernel_ms},
                       {"roofline_ms", roofline_ms},
                       {"kernels", JsonMember::Raw{"[" + kernels + "]"}}});
}

}  // namespace weft
