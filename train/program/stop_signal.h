// SPDX-License-Identifier: MIT
// The first SIGINT, SIGTERM or SIGHUP stops training after the step, or soon gives it up; a second one but
// SIGHUP ends the program. nohup is respected.
#pragma once

#include <ctime>

namespace weft {

// timeout(1) signals a process and then its group: the same signal 200 ms after the first is no second one.
// Safe in a signal handler.
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

class StopSignal {
 public:
  // `alone`: no other process waits, so CPU work is interrupted between kernels (kernels/interrupt.h).
  explicit StopSignal(bool alone);
  ~StopSignal();                                 // the handlers that were there before
  StopSignal& operator=(StopSignal&&) = delete;  // nor copied
  static const char* received();                 // "SIGTERM", or null
  static const char* overdue();  // the same from two seconds after it on: the step is to be given up
};

}  // namespace weft
