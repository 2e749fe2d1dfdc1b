// SPDX-License-Identifier: MIT
// g++ 12's address sanitizer does not hold its allocator's locks over fork(), as the C library
// does: a copy made while another thread holds one waits for it forever. It happens when a rank's
// watcher begins, and the rank makes the process that reads its data file. So fork() waits until
// all other threads sleep.
#include <string>
#ifdef __SANITIZE_ADDRESS__
#include "tests/train/ranks/ranks_testing.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <pthread.h>
#include <thread>
#include <unistd.h>

namespace {
bool other_threads_sleep() {
  const std::string self = std::to_string(gettid());
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string id, name, state;  // the name is one word: no thread of the tests is given another
    std::ifstream(thread.path() / "stat") >> id >> name >> state;
    if (id != self && !id.empty() && state != "S") return false;
  }
  return true;
}

// some spin before they sleep
void wait_for_other_threads() { weft::eventually(other_threads_sleep, 2); }

[[maybe_unused]] const int kRegistered = pthread_atfork(wait_for_other_threads, nullptr, nullptr);
}  // namespace
#endif
