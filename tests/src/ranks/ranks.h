// SPDX-License-Identifier: MIT
// Real processes for tests of those that train together: forked, with a port of their own, watched
// by the clock.
#pragma once

#include "src/files/descriptor.h"
#include "src/ranks/communicator.h"
#include "src/ranks/process_group.h"
#include "src/ranks/sockets.h"
#include "tests/temp_dir.h"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <omp.h>
#include <signal.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace weft {
constexpr std::chrono::seconds kPatience{20};

// A port of the loopback interface, reserved until this process ends: tests run beside each other.
inline int free_port() {
  static std::vector<Descriptor> holders;
  return reserve_port(holders.emplace_back());
}

// The processes of one world of this host, each of which does `work` as its rank. What a program's
// main() does with an Error, they do: exit code 1 and a line on stderr. A failed expectation is
// exit code 2. `world_of` changes what a process takes itself for.
class Ranks {
 public:
  using Work = std::function<void(const World&)>;

  static constexpr int kKilled = -1;  // exit code of a process that a signal ended

  explicit Ranks(int count, const Work& work,
                 const std::function<void(World&, int)>& world_of = {}) {
    const int port = free_port();
    for (int i = 0; i < count; ++i) {
      World world{
          .rank = i,
          .size = count,
          .local_rank = i,
          .local_size = count,
          .port = port,
          .source = "test",
      };
      if (world_of) world_of(world, i);
      std::fflush(nullptr);
      const pid_t pid = fork();
      if (pid == 0) run(world, work, error_file(i));
      pids_.push_back(pid);
      codes_.push_back(kRunning);
    }
  }

  ~Ranks() {
    for (std::size_t i = 0; i < pids_.size(); ++i) {
      if (codes_[i] != kRunning) continue;
      ::kill(pids_[i], SIGKILL);
      waitpid(pids_[i], nullptr, 0);
    }
  }

  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void signal(int process, int number) const {
    ::kill(pids_[static_cast<std::size_t>(process)], number);
  }

  int count() const { return static_cast<int>(pids_.size()); }

  int pid(int process) const { return pids_[static_cast<std::size_t>(process)]; }

  // Waits until the processes named (all: none named) have ended. False: not within `limit`.
  bool end(std::vector<int> processes = {}, std::chrono::seconds limit = std::chrono::seconds(40)) {
    if (processes.empty())
      for (std::size_t i = 0; i < pids_.size(); ++i) processes.push_back(static_cast<int>(i));
    const auto began = std::chrono::steady_clock::now();
    for (const int p : processes) {
      int& code = codes_[static_cast<std::size_t>(p)];
      while (code == kRunning) {
        int status = 0;
        if (waitpid(pids_[static_cast<std::size_t>(p)], &status, WNOHANG) > 0)
          code = WIFEXITED(status) ? WEXITSTATUS(status) : kKilled;
        if (code == kRunning && std::chrono::steady_clock::now() - began > limit) return false;
        if (code == kRunning) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
    return true;
  }

  int code(int process) const { return codes_[static_cast<std::size_t>(process)]; }

  std::string errors(int process) const { return read_file(error_file(process)); }

  // A file that processes and the test share.
  std::string operator/(const std::string& name) const { return folder_ / name; }

 private:
  static constexpr int kRunning = -2;

  std::string error_file(int process) const {
    return folder_ / ("stderr." + std::to_string(process));
  }

  [[noreturn]] static void run(const World& world, const Work& work, const std::string& errors) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    omp_set_num_threads(1);  // a pool of threads does not survive fork()
    int code = 0;
    unsetenv("WEFT_ERROR_FD");
    if (!std::freopen(errors.c_str(), "w", stderr)) _exit(3);
    try {
      work(world);
    } catch (const Error& error) {
      std::fprintf(stderr, "error: %s\n", error.what());
      code = 1;
    }
    if (testing::Test::HasFailure()) code = 2;
    std::fflush(nullptr);
    _exit(code);
  }

  TempDir folder_;
  std::vector<pid_t> pids_;
  std::vector<int> codes_;
};

// All processes end within `limit`, and nothing has gone wrong in any of them.
inline void expect_all_well(Ranks& ranks, std::chrono::seconds limit = std::chrono::seconds(40)) {
  ASSERT_TRUE(ranks.end({}, limit));
  for (int rank = 0; rank < ranks.count(); ++rank)
    EXPECT_EQ(ranks.code(rank), 0) << "rank " << rank << ": " << ranks.errors(rank);
}

// A rank that computes on the CPU.
struct CpuRank {
  ProcessGroup group;
  std::unique_ptr<Device> device = make_device("cpu");
  std::unique_ptr<Communicator> comm = make_communicator(*device, group);

  explicit CpuRank(const World& world)
      : group(world, "same", std::chrono::seconds(20)) {}

  int rank() const { return group.rank(); }
};

// `count` of them do `work`, and nothing goes wrong.
inline void expect_cpu_ranks(int count, const std::function<void(CpuRank&)>& work) {
  Ranks ranks(count, [&](const World& world) {
    CpuRank rank(world);
    work(rank);
  });
  expect_all_well(ranks, std::chrono::seconds(120));
}

// What a rank that stops has done is known from its last report: ranks send one five times a
// second, and take their first steps in less than that.
inline void let_ranks_report() { std::this_thread::sleep_for(std::chrono::seconds(2)); }

inline void wait_for_file(const std::string& path) {
  for (int i = 0; i < 4000 && access(path.c_str(), F_OK) != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}
}  // namespace weft
