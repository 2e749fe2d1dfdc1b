// SPDX-License-Identifier: MIT
// UpdateWatch: a thread that ends this process when training comes no further, as a kernel that
// never returns would keep it forever.
#pragma once

#include "kernels/diagnostics/pace.h"
#include "src/processes.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace weft {
class Device;

// A process alone that is watched by itself. The Trainer reports to it as to any Processes: a step
// or a part of one at least every `limit`, or three times its longest pause so far. It has ten
// limits until two steps are reported, at first and after take_time().
class UpdateWatch : public Processes {
 public:
  // `kept`: what to say of the last checkpoint. When time is over, the process prints one line that
  // names the last launch, and leaves with exit code 1.
  UpdateWatch(std::chrono::milliseconds limit, std::function<std::string()> kept);
  UpdateWatch& operator=(UpdateWatch&&) = delete;  // nor copied
  ~UpdateWatch() override;

  void report_step(int64_t step) override;
  void report_progress() override;
  void take_time() override;

 private:
  void watch();
  void change(const std::function<void(Pace&)>&);

  std::function<std::string()> kept_;
  std::mutex mutex_;  // of the following
  std::condition_variable ended_;
  Pace pace_;
  bool end_ = false;
  std::thread thread_;
};

// WEFT_HANG_SECONDS, or nothing where it is not set. Throws Error when it is no number from 1.
std::optional<std::chrono::seconds> hang_seconds();

// A watch for training by one process: 60 s on a GPU. A CPU, where a step may take minutes, has one
// where WEFT_HANG_SECONDS is set. Null: not watched.
std::unique_ptr<UpdateWatch> watch_for(const Processes&, const Device&,
                                       const std::function<std::string()>& kept);
}  // namespace weft
