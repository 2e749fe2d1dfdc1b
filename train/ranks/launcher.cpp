// SPDX-License-Identifier: MIT
// Processes, signals, and the one line about the first that failed.
#include "train/ranks/launcher.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <omp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "src/device.h"

namespace weft {
namespace {

// How long the others have to leave by themselves, and to say why, when one process has failed; and when one
// has said it; and how long one that was killed may take to end.
constexpr std::chrono::seconds kGrace(5), kGraceAfterLine(1), kGraceAfterKill(5);

class File {  // an open file descriptor
 public:
  explicit File(int descriptor = -1) : descriptor_(descriptor) {}
  ~File() { close(); }
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  int get() const { return descriptor_; }
  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

 private:
  int descriptor_;
};

int checked(int result, const char* what) {
  if (result < 0) fail(str("--gpus: ", what, ": ", std::strerror(errno)));
  return result;
}

std::vector<std::string> command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::string> words;
  for (std::size_t at = 0; at < all.size(); at += words.back().size() + 1)
    words.emplace_back(all.c_str() + at);
  return words;
}

// A port of this host that nobody else gets as long as the object lives: bound, but without a listener, so
// that rank 0 can take it.
class ReservedPort {
 public:
  ReservedPort() : socket_(checked(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "no socket")) {
    const int on = 1;
    checked(setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "no socket");
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    checked(bind(socket_.get(), any, size), "no free port on 127.0.0.1");
    checked(getsockname(socket_.get(), any, &size), "no free port on 127.0.0.1");
    number_ = ntohs(address.sin_port);
  }
  int number() const { return number_; }

 private:
  File socket_;
  int number_ = 0;
};

// While it lives, these signals are read from a file descriptor. Threads started meanwhile block them too.
class SignalFile {
 public:
  SignalFile() {
    std::signal(SIGCHLD, SIG_DFL);  // whoever started this process may have ignored it
    sigset_t mask;
    sigemptyset(&mask);
    for (const int number : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&mask, number);
    sigprocmask(SIG_BLOCK, &mask, &before_);
    file_ = File(checked(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK), "no signalfd"));
  }
  ~SignalFile() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  SignalFile(const SignalFile&) = delete;
  SignalFile& operator=(const SignalFile&) = delete;
  int get() const { return file_.get(); }
  const sigset_t& before() const { return before_; }
  // SIGTERM or SIGINT when one is waiting, 0 otherwise.
  int next_stop() const {
    signalfd_siginfo info;
    while (read(file_.get(), &info, sizeof info) == sizeof info)
      if (info.ssi_signo != SIGCHLD) return static_cast<int>(info.ssi_signo);
    return 0;
  }

 private:
  sigset_t before_;
  File file_;
};

// What execve() wants: all that is allocated is there before the fork.
class Strings {
 public:
  explicit Strings(std::vector<std::string> strings) : strings_(std::move(strings)) {
    for (std::string& s : strings_) pointers_.push_back(s.data());
    pointers_.push_back(nullptr);
  }
  char** get() { return pointers_.data(); }

 private:
  std::vector<std::string> strings_;
  std::vector<char*> pointers_;
};

// This process's environment with `ours` in place of what has the same names.
std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& ours) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const auto same_name = [&](const auto& o) { return text.starts_with(o.first + "="); };
    if (std::none_of(ours.begin(), ours.end(), same_name)) all.push_back(text);
  }
  for (const auto& [name, value] : ours) all.push_back(name + "=" + value);
  return all;
}

class Launcher {
 public:
  explicit Launcher(int count) : count_(count) {}
  ~Launcher() { end_all(); }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  void run() {
    for (int rank = 0; rank < count_; ++rank) start(rank);
    while (running() > 0) {
      wait_for_news();
      if (const int number = signals_.next_stop(); number != 0) pass_on(number);
      for (Process& p : processes_) read_errors(p);
      reap();
      if (failed_ && Clock::now() >= deadline_) end_all();
    }
    if (!failed_) return;
    if (stop_ != 0 && ended_by_stop_) _exit(128 + stop_);
    fail(verdict());
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Process {
    int rank;
    pid_t pid;
    File errors;
    std::string unread;  // of a line that is not whole
    bool running = true;
  };

  std::vector<std::pair<std::string, std::string>> variables(int rank, int error_file) const {
    std::vector<std::pair<std::string, std::string>> v = {
        {"RANK", str(rank)},          {"WORLD_SIZE", str(count_)},
        {"LOCAL_RANK", str(rank)},    {"LOCAL_WORLD_SIZE", str(count_)},
        {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", str(port_.number())},
        {"WEFT_GPUS", str(count_)},   {"WEFT_ERROR_FD", str(error_file)}};
    if (!std::getenv("OMP_NUM_THREADS"))
      v.emplace_back("OMP_NUM_THREADS", str(std::max(1, omp_get_num_procs() / count_)));
    return v;
  }

  void start(int rank) {
    int ends[2];
    checked(pipe2(ends, O_CLOEXEC), "no pipe");
    File read_end(ends[0]), write_end(ends[1]);
    Strings arguments(command_line()), environment(environment_with(variables(rank, write_end.get())));
    const pid_t launcher = getpid(), group = processes_.empty() ? 0 : processes_[0].pid;
    const pid_t pid = checked(fork(), "no new process");
    if (pid == 0) become_rank(launcher, group, write_end.get(), arguments, environment);
    setpgid(pid, group);
    fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
    processes_.push_back({rank, pid, std::move(read_end), "", true});
  }

  // In the new process: only calls that are allowed between fork and exec.
  [[noreturn]] void become_rank(pid_t launcher, pid_t group, int error_file, Strings& arguments,
                                Strings& environment) const {
    setpgid(0, group);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);  // it ended before the line above
    signal(SIGTTOU, SIG_IGN);             // writes to a terminal that belongs to another process group
    const int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
    fcntl(error_file, F_SETFD, 0);
    sigprocmask(SIG_SETMASK, &signals_.before(), nullptr);
    execve("/proc/self/exe", arguments.get(), environment.get());
    _exit(127);
  }

  std::int64_t running() const {
    return std::count_if(processes_.begin(), processes_.end(), [](const Process& p) { return p.running; });
  }

  void wait_for_news() const {
    std::vector<pollfd> files{{signals_.get(), POLLIN, 0}};
    for (const Process& p : processes_)
      if (p.errors.get() >= 0) files.push_back({p.errors.get(), POLLIN, 0});
    poll(files.data(), files.size(), 200);
  }

  // The first asks the ranks to save and leave, the second ends them.
  void pass_on(int number) {
    if (stop_ != 0) {
      end_all();
      _exit(128 + number);
    }
    stop_ = number;
    for (const Process& p : processes_)
      if (p.running) kill(p.pid, number);
  }

  void read_errors(Process& p) {
    char block[4096];
    ssize_t size = 0;
    while (p.errors.get() >= 0 && (size = read(p.errors.get(), block, sizeof block)) > 0)
      p.unread.append(block, static_cast<std::size_t>(size));
    if (size == 0) p.errors.close();
    for (std::size_t end; (end = p.unread.find('\n')) != std::string::npos; p.unread.erase(0, end + 1)) {
      const std::string line = p.unread.substr(0, end), mark = "error: ";
      note(p.rank, line.starts_with(mark) ? line.substr(mark.size()) : line);
    }
  }

  void reap() {
    for (Process& p : processes_) {
      int status = 0;
      if (!p.running || waitpid(p.pid, &status, WNOHANG) != p.pid) continue;
      p.running = false;
      read_errors(p);
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      if (WIFSIGNALED(status)) {
        if (!failed_) ended_by_stop_ = WTERMSIG(status) == stop_;
        if (!ending_ && killed_.empty())
          killed_ = str("rank ", p.rank, " was ended by signal ", WTERMSIG(status), " (",
                        strsignal(WTERMSIG(status)), ")");
      } else if (first_.empty()) {
        silent_ = str("rank ", p.rank, " left with exit code ", WEXITSTATUS(status), " and said nothing");
      }
      set_failed(kGrace);
    }
  }

  // An error line of a rank: the first one counts.
  void note(int rank, const std::string& text) {
    if (first_.empty())
      first_ = text.starts_with("rank ") || rank == 0 ? text : str("rank ", rank, ": ", text);
    set_failed(kGraceAfterLine);
  }
  void set_failed(std::chrono::seconds grace) {
    const Clock::time_point then = Clock::now() + grace;
    deadline_ = failed_ ? std::min(deadline_, then) : then;
    failed_ = true;
  }

  // A rank that somebody killed is the reason, whatever the others said about it.
  std::string verdict() const {
    if (!killed_.empty()) return killed_ + (first_.empty() ? "" : str("; ", first_)) + left_;
    return (first_.empty() ? silent_ : first_) + left_;
  }

  // One that waits for a disk or a device within the system ends when that answers, and nobody can make it.
  void end_all() {
    ending_ = true;
    for (const Process& p : processes_)
      if (p.running) kill(p.pid, SIGKILL);
    const Clock::time_point latest = Clock::now() + kGraceAfterKill;
    for (Process& p : processes_) {
      if (!p.running) continue;
      read_errors(p);
      bool late = false;
      while (waitpid(p.pid, nullptr, WNOHANG) == 0 && !(late = Clock::now() >= latest))
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      p.running = false;
      if (late)
        left_ += str("; rank ", p.rank, " (pid ", p.pid,
                     ") was killed and will end when the disk or device that it waits for answers");
    }
  }

  int count_;
  SignalFile signals_;
  ReservedPort port_;
  std::vector<Process> processes_;
  bool failed_ = false, ending_ = false, ended_by_stop_ = false;
  int stop_ = 0;  // the signal that was passed on
  Clock::time_point deadline_;
  std::string killed_, first_, silent_, left_;
};

}  // namespace

std::string own_command_line() {
  const std::vector<std::string> words = command_line();
  std::string text;
  for (std::size_t i = 1; i < words.size(); ++i) text += words[i] + '\n';
  return text;
}

void launch_ranks(int count, const std::string& device) {
  Launcher launcher(count);  // from here on signals are blocked in threads that the driver may start
  if (const int gpus = device == "cpu" ? count : gpu_count(); gpus < count)
    fail(str("--gpus ", count, ": this machine has ", gpus, gpus == 1 ? " GPU" : " GPUs",
             "; --device cpu starts processes without any"));
  launcher.run();
}

}  // namespace weft
