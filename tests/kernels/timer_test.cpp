// SPDX-License-Identifier: MIT
// Clocks that are read in line with a queue, on the CPU and on a GPU.
#include "kernels/diagnostics/timer.h"

#include "kernels/layers/pointwise.h"
#include "kernels/queue.h"
#include "src/device.h"

#include <chrono>
#include <cstddef>
#include <functional>
#include <gtest/gtest.h>
#include <thread>
#include <variant>
#include <vector>

namespace weft {
namespace {
int64_t since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                              began)
      .count();
}

// Work between two readings of the clocks, and each part of it between two marks.
struct Counted {
  std::vector<ClockReading> began, ended;
  int64_t counted = 0, around = 0;  // nanoseconds: between the marks, and as the host sees all
};

Counted count_rounds(Device& device, int rounds, const std::function<void()>& work) {
  const int64_t count = std::visit([](auto& q) { return multiprocessors(q); }, device.queue),
                bytes = count * static_cast<int64_t>(sizeof(ClockReading));
  const Tensor began(*device.pool, {bytes}, DType::u8), ended(*device.pool, {bytes}, DType::u8),
      time(*device.pool, {16}, DType::u8);
  for (const Tensor& t : {began, ended, time}) device.zero(t);
  const auto read = [&](const Tensor& t) {
    std::visit([&](auto& q) { read_clocks(q, static_cast<ClockReading*>(t.view().data)); },
               device.queue);
  };
  const auto mark = [&](bool ends) {
    std::visit([&](auto& q) { count_time(q, static_cast<int64_t*>(time.view().data), ends); },
               device.queue);
  };
  Counted result;
  result.began.resize(static_cast<std::size_t>(count)), result.ended.resize(result.began.size());
  {
    GraphedStep step(device, true);
    device.synchronize();
    const auto start = std::chrono::steady_clock::now();
    read(began);
    for (int i = 0; i < rounds; ++i) {
      step.run([&] {
        mark(false);
        work();
        mark(true);
      });
    }
    read(ended);
    device.synchronize();
    result.around = since(start);
  }
  int64_t counted[2];
  device.download(result.began.data(), began);
  device.download(result.ended.data(), ended);
  device.download(counted, time);
  result.counted = counted[0];
  return result;
}

TEST(Timer, CountsTheTimeBetweenMarks) {
  const auto device = make_device("cpu");
  const Counted c =
      count_rounds(*device, 3, [] { std::this_thread::sleep_for(std::chrono::milliseconds(4)); });
  ASSERT_EQ(c.began.size(), 1u);
  EXPECT_GE(c.counted, 12'000'000);
  EXPECT_GE(c.ended[0].nanoseconds - c.began[0].nanoseconds, c.counted);
  EXPECT_GE(c.around, c.ended[0].nanoseconds - c.began[0].nanoseconds);
}

TEST(Timer, ClockOfMultiprocessorsThatHaveBothReadings) {
  std::vector<ClockReading> began(4), ended(4);
  EXPECT_EQ(clock_mhz(began, ended), 0);
  began[0] = {100, 1000}, ended[0] = {100 + 3000, 1000 + 2000};  // 1500 MHz
  began[1] = {5, 2000}, ended[1] = {5 + 3400, 2000 + 2000};      // 1700 MHz
  began[2] = {5, 2000};                                          // not read at the end
  ended[3] = {1 << 20, 3000};                                    // not read at the beginning
  EXPECT_DOUBLE_EQ(clock_mhz(began, ended), 1600);
}

#ifdef WEFT_CUDA
// Five replays of a graph are counted as two eager runs are; every multiprocessor tells its clock.
TEST(CudaTimer, CountsTimeAndCycles) {
  const auto device = make_device("cuda");
  const Tensor x(*device->pool, {int64_t{64} << 20}, DType::f32),
      y(*device->pool, {int64_t{64} << 20}, DType::f32);
  device->zero(x);
  const auto work = [&] {
    for (int i = 0; i < 8; ++i) launch(device->queue, Add{.out = {y}, .x = x});
  };
  count_rounds(*device, 3, work);
  const Counted c = count_rounds(*device, 8, work), none = count_rounds(*device, 8, [] {});
  EXPECT_GT(c.counted, c.around / 2) << "most of what the host sees";
  EXPECT_LT(c.counted, c.around);
  EXPECT_GE(none.counted, 0);
  EXPECT_LT(none.counted, c.counted / 10);
  ASSERT_GT(c.began.size(), 1u);
  for (std::size_t i = 0; i < c.began.size(); ++i) {
    const auto cycles = static_cast<double>(c.ended[i].cycles - c.began[i].cycles),
               nanoseconds = static_cast<double>(c.ended[i].nanoseconds - c.began[i].nanoseconds);
    EXPECT_GE(nanoseconds, static_cast<double>(c.counted)) << "multiprocessor " << i;
    EXPECT_GT(cycles / nanoseconds, 0.2) << "multiprocessor " << i;  // GHz
    EXPECT_LT(cycles / nanoseconds, 3.5) << "multiprocessor " << i;
  }
}
#endif
}  // namespace
}  // namespace weft
