// SPDX-License-Identifier: MIT
// The first SIGINT, SIGTERM or SIGHUP stops training after the step, or soon gives it up; a second one but
// SIGHUP ends the program. nohup is respected.
#pragma once

namespace weft {

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
