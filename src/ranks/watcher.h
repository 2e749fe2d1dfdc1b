// SPDX-License-Identifier: MIT
// Watcher: a thread that hears whether the other processes of a run live, and ends this one when one does
// not.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/ranks/rendezvous.h"

namespace weft {

// What is known of a rank at a moment.
struct RankState {
  std::int64_t step = -1;                  // the last one reported; -1: none
  std::chrono::milliseconds silence{0};    // since its watcher last spoke
  std::chrono::milliseconds stillness{0};  // since its last sign of progress
  std::chrono::milliseconds limit{0};      // of stillness; 0: not watched
  std::int64_t collectives = 0;            // that it has come to
  bool waiting = false;                    // in the last of them
};

// The ranks that have stopped by these states, and why: those of which nothing is heard before those that
// stand still, and of the latter those that are behind all others, by collectives, then by steps. One that
// stands still may wait, in a collective or in its GPU, for any that is behind it and moves: it has not
// stopped. None: all go on.
struct Stopped {
  std::vector<int> ranks;
  std::string why;
};
std::optional<Stopped> find_stopped(const std::vector<std::optional<RankState>>& ranks);  // null: has left

class Watcher {
 public:
  // `watch` as in Meeting, whose peers outlive this object.
  Watcher(int rank, int local_rank, const std::vector<Peer>& peers, std::vector<Socket> watch);
  ~Watcher();  // goodbye() if nothing was said yet
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // Steps, limits, collectives and note_progress() (src/ranks/heartbeat.h) are signs of progress.
  void report_step(std::int64_t step);
  void set_limit(std::chrono::milliseconds);  // 0, as at first: not watched
  void enter_collective();
  void leave_collective();

  // This rank is done, and does not count as dead afterwards.
  void goodbye();
  // This rank cannot go on. Rank 0 says why, unless it is rank 0, and all others end. `line`, where it is not
  // empty, is printed here first, unless this process has printed another one: a launcher ends all processes
  // when the first has ended. Returns when rank 0 has spoken, or 10 s later.
  void fail(const std::string& why, const std::string& line = "");
  // Has `rank` said goodbye? Waits as long as it takes to know; does not return when it is dead.
  bool has_left(int rank);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft
