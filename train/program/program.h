// SPDX-License-Identifier: MIT
// What every program does around its work: command line, errors, exit code, signals.
#pragma once

#include <ctime>
#include <functional>
#include <string>

// included by the few files that describe command lines: it takes seconds to compile
namespace CLI {
class App;
}

namespace weft {
struct Program {
  const char* name;
  const char* purpose;
  std::function<void(CLI::App&)> add_options;
  std::function<void()> work;  // runs when the command line has been parsed
  bool has_ranks = false;      // works on a model, which processes may share (launcher.h)
};

struct SaidElsewhere {};  // thrown by `work` when another process prints the error

// Starts OpenMP's threads. Throws Error where there is no memory for them; libgomp would end the
// process without a word.
void start_threads();

std::string out_of_memory();  // what a program on a model says of std::bad_alloc

// Parses the command line, with --help and --version, and runs the program. Returns the exit code:
// 0, or 1 after one line "error: ..." on stderr (src/files/error_line.h). Bad options and an stdout
// that took less than was written are errors, too. After SaidElsewhere there is no line.
int run_program(const Program&, int argc, char** argv);

// Tells a repeated signal from a second one: timeout(1) signals a process, then its group. Within
// 200 ms they are one. A signal handler may call it.
class Echo {
 public:
  void begin() { clock_gettime(CLOCK_MONOTONIC, &first_); }

  bool lasts() const {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - first_.tv_sec) * 1000 + (now.tv_nsec - first_.tv_nsec) / 1000000 < 200;
  }

 private:
  timespec first_{};
};

// The first SIGINT, SIGTERM or SIGHUP stops training after the step, or gives a long step up. A
// second SIGINT or SIGTERM ends the program. Under nohup, SIGHUP stays ignored.
class StopSignal {
 public:
  // `alone`: no other process waits, so CPU work is interrupted between kernels
  // (kernels/interruption.h).
  explicit StopSignal(bool alone);
  ~StopSignal();                                 // restores the earlier handlers
  StopSignal& operator=(StopSignal&&) = delete;  // nor copied
  static const char* received();                 // "SIGTERM", or null
  // The same once two seconds have passed since then: the step is to be given up.
  static const char* overdue();
};
}  // namespace weft
