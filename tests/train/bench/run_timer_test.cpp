// SPDX-License-Identifier: MIT
// Times and clocks of runs: what is counted, what is not.
#include "train/bench/run_timer.h"

#include "tests/temp_dir.h"
#include "train/bench/bench.h"

#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>
#include <numeric>
#include <sstream>

namespace weft {
namespace {
TEST(RunTimer, TimesAreMediansAndClocksMeans) {
  const TimedRuns runs{{2, 1, 4}, {1500, 2000, 1000}};
  EXPECT_EQ(runs.median_ms(), 2);
  EXPECT_EQ(runs.mean_clock(), 1500);
}

TEST(RunTimer, RestsAreNotCounted) {
  const auto device = make_device("cpu");
  RunTimer timer(*device, 20);
  int calls = 0;
  const auto began = std::chrono::steady_clock::now();
  const TimedRuns runs = timer.time(3, [&] { ++calls; });
  const std::chrono::duration<double, std::milli> all = std::chrono::steady_clock::now() - began;
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(runs.milliseconds.size(), 3u);
  const double counted = std::accumulate(runs.milliseconds.begin(), runs.milliseconds.end(), 0.0);
  EXPECT_GE(all.count(), counted + 60);
  EXPECT_EQ(RunTimer(*device).time(150, [&] { ++calls; }).milliseconds.size(), 150u);
  EXPECT_EQ(calls, 153);
}

#ifdef WEFT_CUDA
TEST(CudaRunTimer, EachRunHasItsClock) {
  const auto device = make_device("cuda");
  const Tensor memory(*device->pool, {1 << 28}, DType::u8);
  for (const int pause_ms : {0, 5}) {
    const TimedRuns runs = RunTimer(*device, pause_ms).time(70, [&] { device->zero(memory); });
    ASSERT_EQ(runs.clocks.size(), 70u);
    for (const double mhz : runs.clocks) EXPECT_TRUE(mhz > 200 && mhz < 4000) << mhz;
  }
}
#endif
}  // namespace
}  // namespace weft
