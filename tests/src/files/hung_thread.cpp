// SPDX-License-Identifier: MIT
#include "tests/src/files/hung_thread.h"

#include "kernels/view.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>

namespace fs = std::filesystem;

namespace weft {
bool eventually(const std::function<bool()>& done, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  while (!done()) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds)
      return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

HungThread::HungThread(pid_t pid)
    : pid_(pid) {
  if (ptrace(PTRACE_SEIZE, pid, nullptr, PTRACE_O_TRACESYSGOOD) != 0) {
    pid_ = -1;
    return;
  }
  ptrace(PTRACE_INTERRUPT, pid, nullptr, nullptr);
  waitpid(pid, nullptr, __WALL);
}

// Of a thread at a stop that a system call makes.
bool HungThread::at_disk_call(const std::string& name) const {
  __ptrace_syscall_info info{};
  if (ptrace(PTRACE_GET_SYSCALL_INFO, pid_, sizeof info, &info) <= 0) return false;
  if (info.op != PTRACE_SYSCALL_INFO_ENTRY) return false;
  const auto calls = {SYS_read, SYS_pread64, SYS_write, SYS_fsync};
  if (std::find(calls.begin(), calls.end(), static_cast<long>(info.entry.nr)) == calls.end())
    return false;
  std::error_code gone;
  return fs::read_symlink(str("/proc/", pid_, "/fd/", info.entry.args[0]), gone)
      .string()
      .ends_with(name);
}

bool HungThread::runs_to_disk_call(const std::string& name) {
  constexpr int kSystemCall = SIGTRAP | 0x80;  // PTRACE_O_TRACESYSGOOD
  for (int signal = 0;;) {
    ptrace(PTRACE_SYSCALL, pid_, nullptr, signal);
    int status = 0;
    if (waitpid(pid_, &status, __WALL) != pid_ || !WIFSTOPPED(status)) return false;
    const bool of_call = WSTOPSIG(status) == kSystemCall, of_signal = status >> 16 == 0 && !of_call;
    signal = of_signal ? WSTOPSIG(status) : 0;
    if (of_call && at_disk_call(name)) return true;
  }
}

void HungThread::let_go() { ptrace(PTRACE_DETACH, pid_, nullptr, nullptr); }

void HungThread::wait_for_end() {
  for (int status = 0; waitpid(pid_, &status, __WALL) == pid_ && WIFSTOPPED(status);) {}
}
}  // namespace weft
