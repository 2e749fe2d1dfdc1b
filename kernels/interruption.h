// SPDX-License-Identifier: MIT
// A request to give up the CPU's work. The engine between kernels, and long kernels between their
// tasks, look for it and throw Interrupted. Only a process without collectives may ask: its peers
// would wait for it.
#pragma once

#include <atomic>

namespace weft {
struct Interrupted {};  // not an Error: the work was given up, nothing went wrong

inline std::atomic<bool> interrupt_requested{false};

inline bool interrupted() { return interrupt_requested.load(std::memory_order_relaxed); }

// Takes the request back: what unwinds from here may launch kernels again.
[[noreturn]] inline void throw_interrupted() {
  interrupt_requested = false;
  throw Interrupted();
}
}  // namespace weft
