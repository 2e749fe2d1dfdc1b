// SPDX-License-Identifier: MIT
// The debug level, read once from the environment, and what it does on the CPU; time there.
#include "kernels/queue.h"

#include "kernels/cpu.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

namespace weft {
namespace {
std::chrono::steady_clock::time_point launch_began;  // launches come from one thread

// ---- time of launches on the CPU, where a launch returns when its work is done ----

class CpuProfile : public LaunchProfile {
 public:
  void begin() override { began_ = std::chrono::steady_clock::now(); }

  void end(const char* kernel, LaunchCost cost) override {
    const std::chrono::duration<double, std::milli> took =
        std::chrono::steady_clock::now() - began_;
    records_.push_back({kernel, std::move(cost), took.count()});
  }

  std::vector<LaunchRecord> take() override { return std::exchange(records_, {}); }

 private:
  std::chrono::steady_clock::time_point began_;
  std::vector<LaunchRecord> records_;
};

int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
}  // namespace

int debug_level() {
  static const int level = [] {
    const char* text = std::getenv("WEFT_DEBUG");
    if (!text || !*text) return 0;
    if (text[0] < '0' || text[0] > '3' || text[1] != 0)
      fail("WEFT_DEBUG: expected 0, 1, 2 or 3, got '", text, "'");
    return text[0] - '0';
  }();
  return level;
}

void begin(CpuQueue&) {
  if (debug_level() >= 1) launch_began = std::chrono::steady_clock::now();
}

void finish(CpuQueue&, const char* kernel) {
  if (debug_level() == 0) return;
  const std::chrono::duration<double, std::milli> took =
      std::chrono::steady_clock::now() - launch_began;
  std::fprintf(stderr, "weft: cpu %s %.3f ms\n", kernel, took.count());
}

void check(const CountNonFinite& k) {
  expect_floating(k.x, "count_non_finite: x");
  expect_size(k.count, DType::i32, 1, "count_non_finite: count");
}

void compute(CpuQueue&, const CountNonFinite& k) {
  int64_t count = 0;
  dispatch_float(k.x.dtype, [&]<class T>() {
    const T* x = k.x.as<T>();
#pragma omp parallel for schedule(static) reduction(+ : count) if (k.x.size() > kParallelElements)
    for (int64_t i = 0; i < k.x.size(); ++i) count += !std::isfinite(static_cast<wide_t<T>>(x[i]));
  });
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  *k.count.as<int32_t>() = static_cast<int32_t>(std::min(count, kMost));
}

void check_finite(CpuQueue& q, const char* kernel, const std::vector<TensorView>& outputs) {
  for (const TensorView& x : outputs) {
    if (!x) continue;
    int32_t found = 0;
    run(q, CountNonFinite{{&found, DType::i32, 1}, x});
    WEFT_CHECK(found == 0, kernel, ": ", found, " of the ", x.size(), " elements of an output ",
               shape_text(x), " are NaN or infinite");
  }
}

std::unique_ptr<LaunchProfile> make_launch_profile(CpuQueue&) {
  return std::make_unique<CpuProfile>();
}

std::vector<double> time_runs(CpuQueue&, int repeats, const std::function<void()>& before,
                              const std::function<void()>& work) {
  std::vector<double> milliseconds;
  for (int i = 0; i < repeats; ++i) {
    before();
    const int64_t began = nanoseconds_now();
    work();
    milliseconds.push_back(static_cast<double>(nanoseconds_now() - began) * 1e-6);
  }
  return milliseconds;
}

int64_t multiprocessors(CpuQueue&) { return 1; }

void read_clocks(CpuQueue&, ClockReading* readings) { *readings = {0, nanoseconds_now()}; }

double clock_mhz(std::span<const ClockReading> began, std::span<const ClockReading> ended) {
  double cycles = 0, nanoseconds = 0;
  for (std::size_t i = 0; i < began.size(); ++i) {
    if (began[i].nanoseconds == 0 || ended[i].nanoseconds == 0) continue;
    cycles += static_cast<double>(ended[i].cycles - began[i].cycles);
    nanoseconds += static_cast<double>(ended[i].nanoseconds - began[i].nanoseconds);
  }
  return nanoseconds > 0 ? cycles / nanoseconds * 1e3 : 0;
}

void count_time(CpuQueue&, int64_t* nanoseconds, bool ends) {
  *nanoseconds += ends ? nanoseconds_now() : -nanoseconds_now();
}
}  // namespace weft
