// SPDX-License-Identifier: MIT
// SIGINT and SIGTERM while training. The first asks the loop to stop after the step at hand; a step that is
// not done soon after is given up. The second ends the program at once.
#pragma once

namespace weft {

class StopSignal {
 public:
  // `alone`: no other process waits for this one. Work on the CPU is then interrupted between kernels, too
  // (kernels/interrupt.h).
  explicit StopSignal(bool alone);
  ~StopSignal();  // the handlers that were there before
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  static const char* received();  // "SIGTERM", or null
  static const char* overdue();   // the same from two seconds after it on: the step is to be given up
};

}  // namespace weft
