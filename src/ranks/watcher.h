// SPDX-License-Identifier: MIT
// Watcher: a thread that ends this process when another rank is cut off or exceeds its time for a
// step.
#pragma once

#include "src/files/descriptor.h"
#include "src/ranks/sockets.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace weft {
// What each rank reports of itself several times a second.
struct RankState {
  int64_t step = -1;                     // the last one reported; -1: none
  std::chrono::milliseconds quiet{0};    // since its last progress
  std::chrono::milliseconds allowed{0};  // longest time without progress; 0: it is not watched
  bool waiting = false;                  // in a collective, for another rank
};

// Returns the ranks that hold up the others for longer than allowed, or none. These are the ranks
// at the lowest step that are in no collective. When all are in one, it is the rank that rank 0
// waits for (`awaited`; -1: none). A rank that has left is null in `ranks`.
std::vector<int> find_hung(const std::vector<std::optional<RankState>>& ranks, int awaited);

inline std::chrono::milliseconds since(Clock::time_point then) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - then);
}

// The progress of this rank, and the time that it is allowed.
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

  RankState state() const;
};

class Watcher {
 public:
  // `watch` as in Meeting, whose peers outlive this object.
  Watcher(int rank, int local_rank, const std::vector<Peer>& peers, std::vector<Descriptor> watch);
  ~Watcher();  // goodbye() if nothing was said yet

  void change(const std::function<void(Pace&)>&);  // under the lock of the thread
  std::string where() const;                       // "after step 7"

  // This rank leaves as planned: the others do not take it for dead.
  void goodbye() { fail(""); }

  // This rank failed: all others end, and rank 0 prints why, unless this is rank 0. A non-empty
  // `line` is printed here first, unless a line was printed before. Returns when rank 0 has
  // printed, or after 10 s.
  void fail(const std::string& why, const std::string& line = "");

 private:
  struct State;
  std::unique_ptr<State> state_;
};
}  // namespace weft
