// SPDX-License-Identifier: MIT
// The host launches updates before it has the results of earlier ones, so the device is never idle.
// Kernels write the results of a micro-batch to host memory; a QueueMark says when they are there.
#pragma once

#include "src/device.h"
#include "src/tape.h"

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

namespace weft {
class RunAhead {
 public:
  // `micro_batches` of an update; `scaled` as below.
  RunAhead(Device&, int64_t micro_batches, bool scaled = false);

  // Call it before micro-batch `micro`. Waits until at most kSeconds of work and kMost updates are
  // in flight.
  void make_room(int64_t micro);
  // Call it after the launch of a micro-batch: copies its results. counted: false for an update
  // that runs again, whose results nobody asks for.
  void record(Ctx&, int64_t micro, const Tensor& results, bool counted = true);

  // Waits for the oldest update that was not returned yet. Its loss is the mean over the
  // micro-batches of this process.
  StepResults next_result();
  std::vector<StepResults> results();  // of all updates since the last call, in order

  // Whether an update that make_room() waited for has_diverged() on this process.
  bool diverged() const { return diverged_; }

  static constexpr int64_t kMost = 16;
  static constexpr double kSeconds = 2;

 private:
  using Clock = std::chrono::steady_clock;
  std::size_t row(int64_t update, int64_t micro) const;
  void read_oldest();

  int64_t micro_batches_;
  bool scaled_, diverged_ = false;
  Tensor history_;  // (kMost, micro-batches, floats of StepResults), in memory of the host
  std::vector<std::unique_ptr<QueueMark>> marks_;  // kMost x micro-batches
  std::vector<Clock::time_point> launched_at_;     // kMost
  int64_t launched_ = 0, read_ = 0;                // updates
  // updates in flight, by the time that the last one took
  int64_t limit_ = 1;
  Clock::time_point last_read_{};
  std::deque<StepResults> unasked_;  // read, oldest first
};

// Whether training cannot go on. f16 (`scaled`) skips overflows, down to the smallest loss scale.
bool has_diverged(const StepResults&, bool scaled);
}  // namespace weft
