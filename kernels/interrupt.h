// SPDX-License-Identifier: MIT
// A request to give up what the CPU is doing. The engine looks at it between kernels, long kernels look at it
// between their tasks; whoever notices throws Interrupted. Only a process that nobody waits for may ask
// (train/program/stop_signal.h): collectives would wait for it.
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
