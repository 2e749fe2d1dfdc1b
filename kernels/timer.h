// SPDX-License-Identifier: MIT
// Time on a queue: CUDA events and clocks on a GPU, the clock on the CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/queue.h"

namespace weft {

// Milliseconds of each of `repeats` runs of `work`. `before` comes before each run and is not counted. Waits
// for the queue.
std::vector<double> time_runs(CpuQueue&, int repeats, const std::function<void()>& before,
                              const std::function<void()>& work);
std::vector<double> time_runs(CudaQueue&, int repeats, const std::function<void()>& before,
                              const std::function<void()>& work);

// What the clocks of a multiprocessor say: its own cycles, and a time that all of a GPU share.
struct ClockReading {
  std::int64_t cycles = 0;       // 0 on the CPU
  std::int64_t nanoseconds = 0;  // 0: that multiprocessor has not been read
};
std::int64_t multiprocessors(CpuQueue&);  // 1
std::int64_t multiprocessors(CudaQueue&);

// When the queue gets there, the clocks of all multiprocessors are written to `readings`, in the queue's
// memory, one for each of multiprocessors(). Takes some microseconds of all of them.
void read_clocks(CpuQueue&, ClockReading* readings);
void read_clocks(CudaQueue&, ClockReading* readings);
// MHz between two such readings, on the host: of all multiprocessors that both have. 0 on the CPU.
double clock_mhz(std::span<const ClockReading> began, std::span<const ClockReading> ended);

// When the queue gets there, the time is subtracted from *nanoseconds (in the queue's memory) where `ends` is
// false, and added where it is true: between them they count how long a part of the queue's work takes, every
// time that it is done, in a captured CUDA graph, too.
void count_time(CpuQueue&, std::int64_t* nanoseconds, bool ends);
void count_time(CudaQueue&, std::int64_t* nanoseconds, bool ends);

}  // namespace weft
