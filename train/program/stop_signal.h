// SPDX-License-Identifier: MIT
// SIGINT and SIGTERM while training: the first asks the loop to stop after the step at hand, the second ends
// the program at once.
#pragma once

namespace weft {

class StopSignal {
 public:
  StopSignal();
  ~StopSignal();  // the handlers that were there before
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  const char* received() const;  // "SIGTERM", or null
};

}  // namespace weft
