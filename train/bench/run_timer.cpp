// SPDX-License-Identifier: MIT
#include "train/bench/run_timer.h"

#include "kernels/diagnostics/timer.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <variant>
#include <vector>

namespace weft {
constexpr int64_t kFlushBytes = int64_t{256} << 20;  // more than any cache holds

double median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

DType bench_dtype(const std::string& name) {
  for (const DType t : {DType::f32, DType::f16, DType::bf16})
    if (name == name_of(t)) return t;
  fail("--dtype must be f32, f16 or bf16, got '", name, "'");
}

std::function<void()> l2_flush(Device& device) {
  if (!device.is_cuda()) return [] {};
  return [&device, flush = Tensor(*device.pool, {kFlushBytes}, DType::u8, "bench")] {
    device.zero(flush);
  };
}

double TimedRuns::median_ms() const { return median(milliseconds); }

double TimedRuns::mean_clock() const {
  return std::accumulate(clocks.begin(), clocks.end(), 0.0) / static_cast<double>(clocks.size());
}

RunTimer::RunTimer(Device& device, int pause_ms)
    : device_(device),
      pause_ms_(pause_ms),
      multiprocessors_(
          std::visit([](auto& queue) { return multiprocessors(queue); }, device.queue)),
      flush_(l2_flush(device)) {}

TimedRuns RunTimer::time_for(double ms, const std::function<void()>& work) {
  const double first = time(device_.is_cuda() ? 3 : 1, work).milliseconds.back();
  return time(std::clamp(static_cast<int>(ms / first), 3, 50), work);
}

// The end of a run is read just before the next one begins: nothing stands between a run and its
// events.
TimedRuns RunTimer::time(int repeats, const std::function<void()>& work) {
  const auto count = static_cast<std::size_t>(multiprocessors_);
  std::vector<ClockReading> readings(2 * static_cast<std::size_t>(repeats) * count);
  const Tensor on_device(*device_.pool, {std::ssize(readings) * int64_t{sizeof(ClockReading)}},
                         DType::u8, "bench");
  device_.zero(on_device);
  const auto read = [&](int reading) {
    auto* const to = static_cast<ClockReading*>(on_device.view().data) + reading * multiprocessors_;
    std::visit([&](auto& queue) { read_clocks(queue, to); }, device_.queue);
  };
  int started = 0;
  const auto before = [&] {
    if (started > 0) read(2 * started - 1);
    if (pause_ms_ > 0) {
      device_.synchronize();
      std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms_));
    }
    flush_();
    read(2 * started++);
  };
  TimedRuns runs;
  runs.milliseconds = std::visit(
      [&](auto& queue) { return time_runs(queue, repeats, before, work); }, device_.queue);
  read(2 * repeats - 1);
  device_.download(readings.data(), on_device);
  for (std::size_t i = 0; i < static_cast<std::size_t>(repeats); ++i) {
    const std::span both(&readings[2 * i * count], 2 * count);
    runs.clocks.push_back(clock_mhz(both.first(count), both.last(count)));
  }
  return runs;
}
}  // namespace weft
