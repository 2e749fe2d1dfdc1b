// SPDX-License-Identifier: MIT
// Profiled steps, their medians, and the table.
#include "train/bench/step_breakdown.h"

#include <algorithm>
#include <iomanip>
#include <map>
#include <ostream>
#include <sstream>

#include "kernels/attention/attention.h"
#include "train/bench/kernels.h"
#include "train/program/loaded_model.h"
#include "train/trainer/step.h"

namespace weft {
namespace {

constexpr int kSteps = 5;  // profiled, after one that fills the pool
// On a GPU the host must stay ahead of the device, or the time of a small kernel is that of its launch: the
// device gets this many clears of kFlushBytes (kernels.h) to do before the step, some 10 ms.
constexpr int kHeadStart = 160;

// Sets the profile of the queue, and takes it away again whatever happens.
class Profiled {
 public:
  explicit Profiled(Device& device) : device_(device) {
    std::visit([&](auto& queue) { profile_ = make_launch_profile(queue); }, device.queue);
    set(profile_.get());
  }
  Profiled(const Profiled&) = delete;
  Profiled& operator=(const Profiled&) = delete;
  ~Profiled() { set(nullptr); }
  std::vector<LaunchRecord> take() { return profile_->take(); }

 private:
  void set(LaunchProfile* profile) {
    std::visit([&](auto& queue) { queue.profile = profile; }, device_.queue);
  }
  Device& device_;
  std::unique_ptr<LaunchProfile> profile_;
};

// The launches of a step, with the median time of each over the steps.
std::vector<LaunchRecord> medians(std::vector<std::vector<LaunchRecord>> steps) {
  std::vector<LaunchRecord> result = steps.front();
  for (const auto& step : steps)
    WEFT_CHECK(step.size() == result.size(), "two steps of ", result.size(), " and ", step.size(),
               " launches: nothing to compare");
  for (std::size_t i = 0; i < result.size(); ++i) {
    std::vector<double> times;
    for (const auto& step : steps) times.push_back(step[i].milliseconds);
    std::nth_element(times.begin(), times.begin() + kSteps / 2, times.end());
    result[i].milliseconds = times[kSteps / 2];
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

double share(const KernelGroup& g) { return g.milliseconds > 0 ? g.floor_ms / g.milliseconds : 0; }

}  // namespace

double StepBreakdown::kernel_ms() const {
  double sum = 0;
  for (const KernelGroup& g : groups) sum += g.milliseconds;
  return sum;
}

double StepBreakdown::floor_ms() const {
  double sum = 0;
  for (const KernelGroup& g : groups) sum += g.floor_ms;
  return sum;
}

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
  std::sort(sorted.begin(), sorted.end(),
            [](const KernelGroup& a, const KernelGroup& b) { return a.milliseconds > b.milliseconds; });
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
  result.copy_rate = device.copy_rate();
  result.matrix_rate = device.matrix_rate(dtype_on(device, config));
  result.groups = group_launches(medians(std::move(launches)));
  add_attention_flops(result.groups, config);
  for (KernelGroup& g : result.groups)
    g.floor_ms = 1e3 * std::max(g.bytes / result.copy_rate, g.flops / result.matrix_rate);
  return result;
}

void print_breakdown(const StepBreakdown& b, double step_ms, std::ostream& out) {
  const auto row = [&](const std::string& name, const std::string& launches, const KernelGroup& g) {
    out << std::left << std::setw(56) << name << std::right << std::setw(9) << launches << std::fixed
        << std::setprecision(3) << std::setw(10) << g.milliseconds << std::setprecision(1) << std::setw(7)
        << 100 * g.milliseconds / step_ms << std::setprecision(3) << std::setw(10)
        << per_second(g.flops, g.milliseconds) * 1e-12 << std::setw(8)
        << per_second(g.bytes, g.milliseconds) * 1e-12 << std::setw(10) << g.floor_ms << std::setprecision(1)
        << std::setw(11) << 100 * share(g) << "\n";
  };
  out << std::left << std::setw(56) << "kernel" << std::right << std::setw(9) << "launches" << std::setw(10)
      << "ms" << std::setw(7) << "%" << std::setw(10) << "TFLOP/s" << std::setw(8) << "TB/s" << std::setw(10)
      << "floor ms" << std::setw(11) << "% of floor"
      << "\n";
  KernelGroup all;
  for (const KernelGroup& g : b.groups) {
    row(g.shape.empty() ? g.kernel : g.kernel + " (" + g.shape + ")", str(g.launches), g);
    all.launches += g.launches;
    all.milliseconds += g.milliseconds;
    all.bytes += g.bytes;
    all.flops += g.flops;
    all.floor_ms += g.floor_ms;
  }
  row("all kernels", str(all.launches), all);
  out << std::left << std::setw(65) << "gaps: launches, copies, clears" << std::right << std::setprecision(3)
      << std::setw(10) << step_ms - all.milliseconds << std::setprecision(1) << std::setw(7)
      << 100 * (step_ms - all.milliseconds) / step_ms << "\n"
      << std::setprecision(3) << "measured here: copies " << b.copy_rate * 1e-12 << " TB/s, matrices "
      << b.matrix_rate * 1e-12 << " TFLOP/s" << std::defaultfloat << std::endl;
}

std::string breakdown_json(const StepBreakdown& b, double step_ms) {
  std::ostringstream out;
  out << "\"copy_tb_per_s\": " << b.copy_rate * 1e-12 << ", \"matrix_tflop_per_s\": " << b.matrix_rate * 1e-12
      << ", \"kernel_ms\": " << b.kernel_ms() << ", \"gap_ms\": " << step_ms - b.kernel_ms()
      << ", \"floor_ms\": " << b.floor_ms() << ", \"kernels\": [";
  for (const KernelGroup& g : b.groups)
    out << (&g == b.groups.data() ? "" : ", ") << "{\"kernel\": \"" << g.kernel << "\", \"shape\": \""
        << g.shape << "\", \"launches\": " << g.launches << ", \"ms\": " << g.milliseconds
        << ", \"tflop_per_s\": " << per_second(g.flops, g.milliseconds) * 1e-12
        << ", \"tb_per_s\": " << per_second(g.bytes, g.milliseconds) * 1e-12
        << ", \"floor_ms\": " << g.floor_ms << ", \"floor_share\": " << share(g) << "}";
  out << "]";
  return out.str();
}

}  // namespace weft
