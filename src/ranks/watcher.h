// SPDX-License-Identifier: MIT
// Watcher: a thread that ends this process when another rank loses its connection or exceeds its time for a
// step.
#pragma once

#include <optional>

#include "src/ranks/rendezvous.h"

namespace weft {

// What a rank says of itself, several times a second.
struct RankState {
  std::int64_t step = -1;                // the last one reported; -1: none
  std::chrono::milliseconds quiet{0};    // since it last came further
  std::chrono::milliseconds allowed{0};  // how long it may be so; 0: it is not watched
  bool waiting = false;                  // in a collective, for another rank
};

// The ranks that hold up the others beyond their time, or none: those at the lowest step outside collectives;
// where all wait, the one that rank 0 waits for (`awaited`, or -1). Null: has left.
std::vector<int> find_hung(const std::vector<std::optional<RankState>>& ranks, int awaited);

class Watcher {
 public:
  // `watch` as in Meeting, whose peers outlive this object.
  Watcher(int rank, int local_rank, const std::vector<Peer>& peers, std::vector<Descriptor> watch);
  ~Watcher();  // goodbye() if nothing was said yet

  void set_limit(std::chrono::milliseconds);  // as those of ProcessGroup; 0, as at first: not watched
  void report_step(std::int64_t step);
  void report_progress();
  void take_time();
  void await(int rank);       // in a collective; -1: no longer
  std::string where() const;  // "after step 7"

  // This rank is done, and does not count as dead afterwards.
  void goodbye() { fail(""); }
  // This rank cannot go on. Rank 0 says why, unless it is rank 0, and all others end. A non-empty `line` is
  // printed here first, unless one was printed before. Returns when rank 0 has spoken, or 10 s later.
  void fail(const std::string& why, const std::string& line = "");

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft
