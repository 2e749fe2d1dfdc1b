// SPDX-License-Identifier: MIT
// A backend is a queue type. A kernel is a parameter struct with one compute() for each queue type:
// foo.h declares both, foo.cpp defines the result, foo.cu computes it on the GPU. launch() alone
// starts kernels.
#pragma once

#include "kernels/view.h"

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

// cudaStream_t and cublasLtHandle_t, without pulling CUDA headers into host code
struct CUstream_st;
struct cublasLtContext;

namespace weft {
struct CpuQueue;
struct CudaQueue;

// ---- a queue with a LaunchProfile records kernel, shape, bytes, FLOP and time of every eager
// launch

// The least that a launch moves and computes: each operand read or written once. 0: unknown.
struct LaunchCost {
  double bytes = 0, flops = 0;
  std::string shape;  // of kernels that run in several: "N 4096, K 512, M 2048"
};

struct LaunchRecord {
  const char* kernel = "";
  LaunchCost cost;
  double milliseconds = 0;
};

class LaunchProfile {
 public:
  virtual ~LaunchProfile() = default;
  virtual void begin() = 0;
  virtual void end(const char* kernel, LaunchCost cost) = 0;
  // The launches since the last call, in order. Waits for the queue.
  virtual std::vector<LaunchRecord> take() = 0;
};

// Reads the clock on the CPU, records events on a GPU.
std::unique_ptr<LaunchProfile> make_launch_profile(CpuQueue&);
std::unique_ptr<LaunchProfile> make_launch_profile(CudaQueue&);

inline double bytes_of(const std::vector<TensorView>& views) {
  double bytes = 0;
  for (const TensorView& v : views) bytes += v ? static_cast<double>(v.bytes()) : 0;
  return bytes;
}

// A kernel that counts more than its operands has cost(); others list inputs() and outputs().
template <class Kernel>
LaunchCost cost_of(const Kernel& kernel) {
  if constexpr (requires { kernel.cost(); }) {
    return kernel.cost();
  } else if constexpr (requires { kernel.inputs(), kernel.outputs(); }) {
    return {
        .bytes = bytes_of(kernel.inputs()) + bytes_of(kernel.outputs()),
        .flops = 0,
        .shape = "",
    };
  } else {
    return {};
  }
}

// ---- queues ----

struct CpuQueue {
  LaunchProfile* profile = nullptr;  // notes each launch, where there is one
};

struct CudaQueue {
  CUstream_st* stream = nullptr;
  cublasLtContext* cublaslt = nullptr;
  // Scratch, at least kWorkspaceBytes. Kernels of a stream run in order: each may use all of it.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  LaunchProfile* profile = nullptr;
};

inline constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;

#ifdef WEFT_CUDA
using Queue = std::variant<CpuQueue, CudaQueue>;
#else
using Queue = std::variant<CpuQueue>;  // compute(CudaQueue&, ...) is never referenced: it links
#endif

// Declares what a kernel struct needs: check(), which throws Error where shapes or types are wrong,
// and the two forms, which compute what was checked.
#define WEFT_KERNEL(Kernel)               \
  void check(const Kernel&);              \
  void compute(CpuQueue&, const Kernel&); \
  void compute(CudaQueue&, const Kernel&)

template <class AnyQueue, class Kernel>
  requires requires { Kernel::kName; }
void run(AnyQueue& queue, const Kernel& kernel) {
  check(kernel);
  compute(queue, kernel);
}

// WEFT_DEBUG: 0 nothing; 1 prints each launch; 2 also waits for it, checks it and prints its time;
// 3 also searches its outputs() for NaN and infinity. Levels 2 and 3 do nothing while a CUDA graph
// is captured.
int debug_level();

// Called around every launch. finish() checks CUDA's last error at every level.
void begin(CpuQueue&);
void begin(CudaQueue&);
void finish(CpuQueue&, const char* kernel);
void finish(CudaQueue&, const char* kernel);
// Throws when an output (unless absent) holds a value that is not finite.
void check_finite(CpuQueue&, const char* kernel, const std::vector<TensorView>& outputs);
void check_finite(CudaQueue&, const char* kernel, const std::vector<TensorView>& outputs);

template <class Kernel>
void launch(Queue& queue, const Kernel& kernel) {
  std::visit(
      [&](auto& q) {
        begin(q);
        if (q.profile) q.profile->begin();
        run(q, kernel);
        if (q.profile) q.profile->end(Kernel::kName, cost_of(kernel));
        finish(q, Kernel::kName);
        if constexpr (requires { kernel.outputs(); }) {
          if (debug_level() >= 3) check_finite(q, Kernel::kName, kernel.outputs());
        }
      },
      queue);
}

// The kernel of check_finite(): count = number of elements that are NaN or infinite, at most 2^31
// - 1.
struct CountNonFinite {
  static constexpr const char* kName = "count_non_finite";
  TensorView count;  // (1)  i32
  TensorView x;      // any floating type
};

WEFT_KERNEL(CountNonFinite);

// ---- time on a queue: CUDA events and clocks on a GPU, the clock on the CPU ----

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

// ---- a request to give up the CPU's work. The engine between kernels, and long kernels between
// their tasks, throw Interrupted. Only a process without collectives may ask: others would wait for
// it. ----

struct Interrupted {};  // not an Error: the work was given up, nothing went wrong

inline std::atomic<bool> interrupt_requested{false};

inline bool interrupted() { return interrupt_requested.load(std::memory_order_relaxed); }

// Takes the request back: what unwinds from here may launch kernels again.
[[noreturn]] inline void throw_interrupted() {
  interrupt_requested = false;
  throw Interrupted();
}
}  // namespace weft
