// SPDX-License-Identifier: MIT
// Processes seen through /proc.
#include "tests/train/ranks/ranks_testing.h"

#include "src/ranks/communicator.h"

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <signal.h>
#include <sstream>
#include <unistd.h>
#include <utility>

namespace fs = std::filesystem;

namespace weft {
namespace {
struct ProcessEntry {
  pid_t pid = -1, parent = -1, group = -1;
  char state = '?';
};

// All processes of this machine that have not ended.
std::vector<ProcessEntry> live_processes() {
  std::vector<ProcessEntry> found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    ProcessEntry p;
    if (std::from_chars(name.data(), name.data() + name.size(), p.pid).ec != std::errc()) continue;
    std::ifstream in(entry.path() / "stat");
    std::string text;
    std::getline(in, text);  // unlike an iterator, does not throw where the process ends meanwhile
    const std::size_t after_name = text.rfind(") ");
    if (after_name == std::string::npos) continue;  // it ended meanwhile
    std::istringstream(text.substr(after_name + 2)) >> p.state >> p.parent >> p.group;
    if (p.state != 'Z' && p.state != 'X') found.push_back(p);
  }
  return found;
}

// RANK in the environment of a process; -1 where there is none, or not yet.
int rank_of(pid_t pid) {
  std::ifstream in(str("/proc/", pid, "/environ"), std::ios::binary);
  for (std::string variable; std::getline(in, variable, '\0');)
    if (variable.starts_with("RANK=")) return std::atoi(variable.c_str() + 5);
  return -1;
}

std::vector<std::string> with_gpus(std::vector<std::string> arguments, int ranks) {
  arguments.insert(arguments.end(), {"--gpus", std::to_string(ranks)});
  return arguments;
}
}  // namespace

void GpuRuns::SetUp() {
  if (nccl_version().empty()) GTEST_SKIP() << "built without NCCL";
  if (const int gpus = gpu_count(); gpus < 2)
    GTEST_SKIP() << "needs two GPUs, this machine has " << gpus;
  write_corpus(dir / "corpus.h5", 20000, 32);
  write_file(dir / "small.yaml", small_yaml(dir.path()));
}

std::vector<std::string> GpuRuns::arguments(const std::string& name,
                                            const std::vector<std::string>& overrides) const {
  std::vector<std::string> all{"--config", dir / "small.yaml", "--device", "cuda",
                               "--out",    dir / name};
  for (const std::string& set : overrides) all.insert(all.end(), {"--set", set});
  return all;
}

void GpuRuns::run(const std::string& name, int gpus, const std::vector<std::string>& overrides,
                  const std::vector<std::string>& more) const {
  std::vector<std::string> words = arguments(name, overrides);
  words.insert(words.end(), more.begin(), more.end());
  Launched launched(dir, "train", words, gpus);
  ASSERT_EQ(launched.wait(), 0) << launched.out() << launched.err();
}

std::vector<std::string> rank_environment(int rank, int size, int port) {
  return {str("RANK=", rank),      str("WORLD_SIZE=", size),       str("LOCAL_RANK=", rank),
          "MASTER_ADDR=127.0.0.1", str("LOCAL_WORLD_SIZE=", size), str("MASTER_PORT=", port),
          "OMP_NUM_THREADS=1"};
}

pid_t rank_process(pid_t parent, int rank) {
  for (const ProcessEntry& p : live_processes())
    if (p.parent == parent && rank_of(p.pid) == rank) return p.pid;
  return -1;
}

Launched::Launched(const TempDir& dir, const std::string& program,
                   std::vector<std::string> arguments, int ranks, const ProcessOptions& options)
    : launcher_(dir, program, with_gpus(std::move(arguments), ranks), options),
      ranks_(static_cast<std::size_t>(ranks), -1) {}

Launched::~Launched() {
  if (group_ > 0) kill(-group_, SIGKILL);  // what a failed test left
}

void Launched::expect_ranks() {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto there = [&] {
      return (ranks_[rank] = rank_process(launcher_.pid(), static_cast<int>(rank))) > 0;
    };
    ASSERT_TRUE(eventually(there)) << "rank " << rank << " was not started: " << err();
  }
  group_ = getpgid(ranks_[0]);
  EXPECT_NE(group_, getpgrp());
}

void Launched::signal_rank(int rank, int number) {
  expect_ranks();
  const pid_t pid = ranks_[static_cast<std::size_t>(rank)];
  if (pid > 0) kill(pid, number);
}

bool Launched::has_waiting(int number) const {
  std::ifstream status(str("/proc/", launcher_.pid(), "/status"));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("ShdPnd:"))
      return std::stoull(line.substr(7), nullptr, 16) >> (number - 1) & 1;
  return false;
}

int Launched::wait() {
  const int code = launcher_.wait();
  const auto none_left = [&] {
    for (const ProcessEntry& p : live_processes())
      if (p.group == group_) return false;
    return true;
  };
  EXPECT_TRUE(group_ <= 0 || eventually(none_left, 5)) << "processes are left: " << err();
  return code;
}
}  // namespace weft
