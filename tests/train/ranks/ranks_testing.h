// SPDX-License-Identifier: MIT
// Programs as several real processes: started with --gpus, or one by one with the variables of
// torchrun.
#pragma once

#include "tests/src/files/hung_thread.h"
#include "tests/train/runs.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace weft {
// What torchrun tells rank `rank` of `size` on one host.
std::vector<std::string> rank_environment(int rank, int size, int port);

// The process that `parent` started as rank `rank`; -1 where there is none, or not yet.
pid_t rank_process(pid_t parent, int rank);

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
