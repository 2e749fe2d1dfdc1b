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

struct SaidElsewhere {};  // thrown by `work` when another process says what went wrong

// Starts OpenMP's threads first; Error when there is no room: libgomp itself can only end the
// process.
void start_threads();

std::string out_of_memory();  // what a program on a model says of std::bad_alloc

// Exit code 0; 1 after "error: ..." on one line of stderr (src/files/files.h), for bad options and
// an stdout that took less than was written, too; 1 alone after SaidElsewhere. Adds --help and
// --version.
int run_program(const Program&, int argc, char** argv);

// timeout(1) signals a process, then its group: within 200 ms it is one signal. Safe in a signal
// handler.
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

// The first SIGINT, SIGTERM or SIGHUP stops training after the step, or soon gives it up; a second
// one but SIGHUP ends the program. nohup is respected.
class StopSignal {
 public:
  // `alone`: no other process waits, so CPU work is interrupted between kernels (kernels/queue.h).
  explicit StopSignal(bool alone);
  ~StopSignal();                                 // the handlers that were there before
  StopSignal& operator=(StopSignal&&) = delete;  // nor copied
  static const char* received();                 // "SIGTERM", or null
  // the same from two seconds after it on: the step is to be given up
  static const char* overdue();
};
}  // namespace weft
