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
// What a rank says of itself, several times a second.
struct RankState {
  int64_t step = -1;                     // the last one reported; -1: none
  std::chrono::milliseconds quiet{0};    // since it last came further
  std::chrono::milliseconds allowed{0};  // how long it may be so; 0: it is not watched
  bool waiting = false;                  // in a collective, for another rank
};

// The ranks that hold up the others beyond their time, or none: those at the lowest step outside
// collectives; where all wait, the one that rank 0 waits for (`awaited`, or -1). Null: has left.
std::vector<int> find_hung(const std::vector<std::optional<RankState>>& ranks, int awaited);

inline std::chrono::milliseconds since(Clock::time_point then) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - then);
}

// How far this rank has come, and how long it may take.
struct Pace {
  RankState known;
  // the rank waited for in a collective; steps reported since restart()
  int awaited = -1, steps = 0;
  std::chrono::milliseconds limit{0}, longest{0};  // limit 0, as at first: not watched
  Clock::time_point last = Clock::now();

  void restart() { steps = 0, last = Clock::now(); }

  void come_further() {  // pauses count from the first step on
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

  void change(const std::function<void(Pace&)>&);  // while the thread does not look
  std::string where() const;                       // "after step 7"

  // This rank is done, and does not count as dead afterwards.
  void goodbye() { fail(""); }

  // This rank cannot go on. Rank 0 says why, unless it is rank 0, and all others end. A non-empty
  // `line` is printed here first, unless one was printed before. Returns when rank 0 has spoken, or
  // 10 s later.
  void fail(const std::string& why, const std::string& line = "");

 private:
  struct State;
  std::unique_ptr<State> state_;
};
}  // namespace weft
