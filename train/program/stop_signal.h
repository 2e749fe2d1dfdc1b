// SPDX-License-Identifier: MIT
// SIGINT and SIGTERM while training: the first stops after the step, or gives it up soon after; the second
// ends.
#pragma once

namespace weft {

class StopSignal {
 public:
  // `alone`: no other process waits, so CPU work is interrupted between kernels (kernels/interrupt.h).
  explicit StopSignal(bool alone);
  ~StopSignal();  // the handlers that were there before
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  static const char* received();  // "SIGTERM", or null
  static const char* overdue();   // the same from two seconds after it on: the step is to be given up
};

}  // namespace weft
