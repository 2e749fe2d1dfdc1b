// SPDX-License-Identifier: MIT
// Programs as several real processes: started with --gpus, or one by one with the variables of
// torchrun.
#pragma once

#include "tests/train/training.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace weft {
// Runs in the folders of a TempDir, by name.
struct RunFolders {
  // The values under `key` of the metrics of a run.
  std::vector<double> of(const std::string& run, const std::string& key) const {
    return metric(dir / (run + "/metrics.jsonl"), key);
  }

  std::string latest(const std::string& run) const { return dir / (run + "/latest.h5"); }

  // As many values as `want` has, each within `tolerance` of it, relatively.
  void expect_near_series(const std::string& run, const std::string& want, const std::string& key,
                          double tolerance) const;

  void expect_same_latest(const std::string& run, const std::string& want) const {
    expect_same_tensors(latest(run), latest(want));
  }

  TempDir dir;
};

// What torchrun tells rank `rank` of `size` on one host.
std::vector<std::string> rank_environment(int rank, int size, int port);

// Waits until `done` says so, at most `seconds`; what it said at last.
bool eventually(const std::function<bool()>& done, double seconds = 120);

// The process that `parent` started as rank `rank`; -1 where there is none, or not yet.
pid_t rank_process(pid_t parent, int rank);

// Keeps the main thread of a descendant of this process where it is, while its other threads go on:
// what a process looks like that hangs in its work.
class HungThread {
 public:
  explicit HungThread(pid_t);  // false where this process may not trace others

  explicit operator bool() const { return pid_ > 0; }

  // Lets it go on until it is about to read, write or sync a file whose name ends in `name`, and
  // keeps it there. False: it has ended. A file that NewFile writes has no name until it is whole:
  // " (deleted)".
  bool runs_to_disk_call(const std::string& name);
  void let_go();
  void wait_for_end();  // of the process; nobody else learns of it before
 private:
  bool at_disk_call(const std::string& name) const;
  pid_t pid_;
};

// A program with --gpus N. Afterwards none of its processes may be there.
class Launched {
 public:
  Launched(const TempDir&, const std::string& program, std::vector<std::string> arguments,
           int ranks, const ProcessOptions& = {});
  ~Launched();
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  void signal(int number) const { launcher_.signal(number); }

  bool has_waiting(int number) const;      // a signal that it has not taken notice of yet
  void signal_rank(int rank, int number);  // waits until all ranks are there
  void expect_ranks();                     // waits until they are

  // after expect_ranks()
  pid_t rank(int number) const { return ranks_[static_cast<std::size_t>(number)]; }

  int wait();  // as Process does; no process is left then

  std::string out() const { return launcher_.out(); }

  std::string err() const { return launcher_.err(); }

 private:
  Process launcher_;
  std::vector<pid_t> ranks_;
  pid_t group_ = -1;
};

// Runs of `train --gpus`; skipped where there are not two.
class GpuRuns : public testing::Test, public RunFolders {
 protected:
  void SetUp() override;
  // What `train` is told for the run <dir>/<name>.
  std::vector<std::string> arguments(const std::string& name,
                                     const std::vector<std::string>& overrides = {}) const;
  void run(const std::string& name, int gpus, const std::vector<std::string>& overrides,
           const std::vector<std::string>& more = {}) const;
};
}  // namespace weft
