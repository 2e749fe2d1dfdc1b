// SPDX-License-Identifier: MIT
// The progress of a process, and the time that it is allowed: what watchers judge.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

namespace weft {
using Clock = std::chrono::steady_clock;

inline std::chrono::milliseconds since(Clock::time_point then) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - then);
}

// What each rank reports of itself several times a second.
struct RankState {
  int64_t step = -1;                     // the last one reported; -1: none
  std::chrono::milliseconds quiet{0};    // since its last progress
  std::chrono::milliseconds allowed{0};  // longest time without progress; 0: it is not watched
  bool waiting = false;                  // in a collective, for another rank
  uint64_t collectives = 0;              // that it has ended

  bool is_over() const { return allowed.count() > 0 && quiet > allowed; }
};

// The progress of this process, and the time that it is allowed.
struct Pace {
  RankState known;
  // the rank waited for in a collective; steps reported since restart()
  int awaited = -1, steps = 0;
  std::chrono::milliseconds limit{0}, longest{0};  // limit 0, as at first: not watched
  Clock::time_point last = Clock::now();

  void restart() { steps = 0, last = Clock::now(); }

  void come_further() {  // progress; pauses count from the first step on
    if (steps > 0) longest = std::max(longest, since(last));
    last = Clock::now();
  }

  void finish_step(int64_t step) { come_further(), known.step = step, ++steps; }

  // Ten limits until two steps are reported, then one, and three times the longest pause.
  RankState state() const;
};

// A watcher that did not run for so long was stopped itself, together with its process.
constexpr std::chrono::milliseconds kOwnPause{1500};

std::string seconds_text(std::chrono::milliseconds time);  // "2.5 s"
std::string after_step(int64_t step);                      // "after step 7"; -1: before the first
}  // namespace weft
