// SPDX-License-Identifier: MIT
// g++ 12's address sanitizer does not hold its allocator's locks over fork(), as the C library does: a copy
// made while another thread holds one waits for it forever. A thread holds them longest at its start, when a
// rank's watcher begins and the rank makes the process that reads its data file. So fork() waits until
// threads are past that.
#ifdef __SANITIZE_ADDRESS__
#include <pthread.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>

namespace {

void wait_for_other_threads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  if (std::distance(begin(threads), end(threads)) > 1)
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

[[maybe_unused]] const int kRegistered = pthread_atfork(wait_for_other_threads, nullptr, nullptr);

}  // namespace
#endif
