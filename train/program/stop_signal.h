// SPDX-License-Identifier: MIT
// Signals that end a program: the first one lets it finish and save, the second ends it.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>

namespace weft {
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
// second SIGINT or SIGTERM ends the program. Under nohup, SIGHUP stays ignored. The handler itself
// says on stderr what happens, at once, however long a step takes.
class StopSignal {
 public:
  // `alone`: no other process waits, so CPU work is interrupted between kernels
  // (kernels/interruption.h). `says`: this process prints for all.
  explicit StopSignal(bool alone, bool says = true);
  ~StopSignal();                                 // restores the earlier handlers
  StopSignal& operator=(StopSignal&&) = delete;  // nor copied
  static const char* received();                 // "SIGTERM", or null
  // The same once two seconds have passed since then: the step is to be given up.
  static const char* overdue();

  // What is at hand, for the lines that the handler writes.
  enum class Work : uint8_t { step, validation, saving };
  static void at(Work, int64_t step);
  // What is kept when the program ends at once: "latest.h5 of step 7". "": nothing.
  static void set_kept(const std::string&);
  static std::string kept();  // "kept: latest.h5 of step 7"
};
}  // namespace weft
