// SPDX-License-Identifier: MIT
#include "src/device.h"
#include "src/files/descriptor.h"
#include "src/ranks/sockets.h"
#include "train/program/program.h"
#include "train/program/stop_signal.h"
#include "train/ranks/ranks.h"

#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <omp.h>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace weft {
namespace {
using std::chrono::milliseconds;
using std::chrono::seconds;

// How long the others may take to leave: after a failure, after its line, after being killed.
constexpr seconds kGrace(5), kGraceAfterLine(1), kGraceAfterKill(5);
constexpr milliseconds kTurn(50);

int checked(int result, const char* what) {
  if (result < 0) fail("--gpus: ", what, ": ", std::strerror(errno));
  return result;
}

// While it lives, these signals wait to be asked for, in threads that are started meanwhile, too.
class BlockedSignals {
 public:
  BlockedSignals() {
    std::signal(SIGCHLD, SIG_DFL);  // whoever started this process may have ignored it
    sigemptyset(&mask_);
    for (const int number : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&mask_, number);
    struct sigaction hangup = {};
    sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) sigaddset(&mask_, SIGHUP);  // nohup ignores it
    sigprocmask(SIG_BLOCK, &mask_, &before_);
  }

  ~BlockedSignals() { restore(); }

  BlockedSignals& operator=(BlockedSignals&&) = delete;  // nor copied

  void restore() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }

  // Waits for a signal, not for long. SIGTERM, SIGINT or SIGHUP, or 0.
  int next_stop() const {
    const timespec longest{0, std::chrono::nanoseconds(kTurn).count()};
    const int number = sigtimedwait(&mask_, nullptr, &longest);
    return number == SIGCHLD ? 0 : std::max(number, 0);
  }

 private:
  sigset_t mask_, before_;
};

class ChildProcesses {
 public:
  explicit ChildProcesses(int count)
      : count_(count) {}

  ~ChildProcesses() { end_all(); }

  void run() {
    start_all();
    while (running() > 0) {
      if (const int number = signals_.next_stop(); number != 0) pass_on(number);
      read_errors();
      for (Process& p : processes_) reap(p);
      if (failed_ && Clock::now() >= deadline_) end_all();
    }
    if (!failed_) return;
    if (stop_ != 0 && ended_by_stop_) _exit(128 + stop_);
    fail(verdict());
  }

 private:
  struct Process {
    int rank;
    pid_t pid;
    bool running = true;
  };

  // The ranks inherit this process's environment, which has no other use.
  void start_all() {
    int ends[2];
    checked(pipe2(ends, O_CLOEXEC), "no pipe");
    errors_ = Descriptor(ends[0]);
    const Descriptor write_end(ends[1]);
    fcntl(errors_.get(), F_SETFL, O_NONBLOCK);
    const auto set = [](const char* name, const auto& value) {
      setenv(name, str(value).c_str(), 1);
    };
    for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "WEFT_GPUS"}) set(name, count_);
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", reserve_port(port_));
    set("WEFT_RUN",
        str(getpid(), '.', std::chrono::steady_clock::now().time_since_epoch().count()));
    set("WEFT_ERROR_FD", write_end.get());
    setenv("OMP_NUM_THREADS", str(std::max(1, omp_get_num_procs() / count_)).c_str(), 0);
    std::vector<std::string> words = command_line();
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    for (int rank = 0; rank < count_; ++rank) {
      set("RANK", rank);
      set("LOCAL_RANK", rank);
      start(rank, write_end.get(), arguments.data());
    }
  }

  void start(int rank, int error_file, char** arguments) {
    const pid_t launcher = getpid(), group = processes_.empty() ? 0 : processes_[0].pid;
    const pid_t pid = checked(fork(), "no new process");
    if (pid == 0) become_rank(launcher, group, error_file, arguments);
    setpgid(pid, group);
    processes_.push_back({rank, pid});
  }

  // In the new process: only calls that are allowed between fork and exec.
  [[noreturn]] void become_rank(pid_t launcher, pid_t group, int error_file,
                                char** arguments) const {
    setpgid(0, group);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);  // it ended before the line above
    signal(SIGTTOU, SIG_IGN);  // writes to a terminal that belongs to another process group
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    fcntl(error_file, F_SETFD, 0);
    signals_.restore();
    execv("/proc/self/exe", arguments);
    _exit(127);
  }

  int64_t running() const {
    return std::ranges::count_if(processes_, [](const Process& p) { return p.running; });
  }

  // The first asks the ranks to save and leave, the second ends them; SIGHUP comes twice
  // (program.cpp).
  void pass_on(int number) {
    if (stop_ != 0) {
      if (number == SIGHUP || (number == stop_ && echo_.lasts())) return;
      for (const Process& p : processes_)  // rank 0 says what was kept
        if (p.running) kill(p.pid, number);
      std::this_thread::sleep_for(kTurn);
      end_all();
      _exit(128 + number);
    }
    echo_.begin();
    stop_ = number;
    for (const Process& p : processes_)
      if (p.running) kill(p.pid, number);
  }

  // Each line is one write; the first one counts.
  void read_errors() {
    char block[4096];
    for (ssize_t size; (size = read(errors_.get(), block, sizeof block)) > 0;)
      unread_.append(block, size);
    for (std::size_t end; (end = unread_.find('\n')) != std::string::npos;
         unread_.erase(0, end + 1)) {
      const std::string line = unread_.substr(0, end), mark = "error: ";
      if (first_.empty()) first_ = line.starts_with(mark) ? line.substr(mark.size()) : line;
      set_failed(kGraceAfterLine);
    }
  }

  void reap(Process& p) {
    int status = 0;
    if (!p.running || waitpid(p.pid, &status, WNOHANG) != p.pid) return;
    p.running = false;
    read_errors();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    if (WIFSIGNALED(status)) {
      if (!failed_) ended_by_stop_ = WTERMSIG(status) == stop_;
      if (!ending_ && killed_.empty())
        killed_ = str("rank ", p.rank, " was ended by signal ", WTERMSIG(status), " (",
                      strsignal(WTERMSIG(status)), ")");
    } else if (first_.empty()) {
      silent_ =
          str("rank ", p.rank, " left with exit code ", WEXITSTATUS(status), " and said nothing");
    }
    set_failed(kGrace);
  }

  void set_failed(seconds grace) {
    const Clock::time_point then = Clock::now() + grace;
    deadline_ = failed_ ? std::min(deadline_, then) : then;
    failed_ = true;
  }

  // A rank that somebody killed is the reason, whatever the others said about it.
  std::string verdict() const {
    if (!killed_.empty()) return killed_ + (first_.empty() ? "" : str("; ", first_)) + left_;
    return (first_.empty() ? silent_ : first_) + left_;
  }

  // One that waits for a disk or a device within the system ends when that answers, and nobody can
  // make it.
  void end_all() {
    ending_ = true;
    for (const Process& p : processes_)
      if (p.running) kill(p.pid, SIGKILL);
    const Clock::time_point latest = Clock::now() + kGraceAfterKill;
    for (Process& p : processes_) {
      bool late = false;
      while (p.running && waitpid(p.pid, nullptr, WNOHANG) == 0 && !(late = Clock::now() >= latest))
        std::this_thread::sleep_for(milliseconds(10));
      p.running = false;
      if (late)
        left_ += str("; rank ", p.rank, " (pid ", p.pid,
                     ") was killed and will end when the disk or device that it waits for answers");
    }
    read_errors();
  }

  int count_;
  BlockedSignals signals_;
  Descriptor port_, errors_;
  std::vector<Process> processes_;
  bool failed_ = false, ending_ = false, ended_by_stop_ = false;
  int stop_ = 0;  // the signal that was passed on
  Echo echo_;
  Clock::time_point deadline_;
  std::string unread_, killed_, first_, silent_, left_;
};
}  // namespace

std::vector<std::string> command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  return words;
}

void launch_ranks(int count, const std::string& device) {
  constexpr int kAnyHost = 64;  // small models share cores
  if (const int most = std::max(kAnyHost, omp_get_num_procs()); device == "cpu" && count > most)
    fail("--gpus ", count, ": expected at most ", most, " processes on the ", omp_get_num_procs(),
         " cores of this machine");
  // from here on signals are blocked in threads that the driver may start
  ChildProcesses children(count);
  if (const int gpus = device == "cpu" ? count : gpu_count(); gpus < count)
    fail("--gpus ", count, ": this machine has ", gpus, gpus == 1 ? " GPU" : " GPUs",
         "; --device cpu starts processes without any");
  children.run();
}
}  // namespace weft
