// SPDX-License-Identifier: MIT
// Time on a queue: CUDA events and clocks on a GPU, the steady clock on the CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace weft {
struct CpuQueue;
struct CudaQueue;

// Milliseconds of each of `repeats` runs of `work`, without `before` in front of each. Waits for
// the queue.
std::vector<double> time_runs(CpuQueue&, int repeats, const std::function<void()>& before,
                              const std::function<void()>& work);
std::vector<double> time_runs(CudaQueue&, int repeats, const std::function<void()>& before,
                              const std::function<void()>& work);

// The clocks of a multiprocessor: its own cycle counter, and the timer that the whole GPU shares.
struct ClockReading {
  int64_t cycles = 0;       // 0 on the CPU
  int64_t nanoseconds = 0;  // 0: that multiprocessor has not been read
};

int64_t multiprocessors(CpuQueue&);  // 1
int64_t multiprocessors(CudaQueue&);

// Enqueues a kernel that writes the clocks of all multiprocessors() to `readings`, in the queue's
// memory.
void read_clocks(CpuQueue&, ClockReading* readings);
void read_clocks(CudaQueue&, ClockReading* readings);
// MHz between two such readings, on the host, over the multiprocessors that both cover. 0 on the
// CPU.
double clock_mhz(std::span<const ClockReading> began, std::span<const ClockReading> ended);

// Enqueues a kernel that subtracts the time from *nanoseconds (in the queue's memory), or adds it
// where `ends`: a pair of calls sums up the time between them, also in replays of a captured CUDA
// graph.
void count_time(CpuQueue&, int64_t* nanoseconds, bool ends);
void count_time(CudaQueue&, int64_t* nanoseconds, bool ends);
}  // namespace weft
