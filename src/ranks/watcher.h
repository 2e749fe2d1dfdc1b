// SPDX-License-Identifier: MIT
// Watcher: a thread that ends this process when another rank is cut off or exceeds its time for a
// step.
#pragma once

#include "kernels/diagnostics/pace.h"
#include "src/files/descriptor.h"
#include "src/ranks/sockets.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace weft {
// Returns the ranks that hold up the others for longer than allowed, or none. These are the ranks
// that have come least far (collectives, then steps) and wait for no other. When all wait, it is
// the rank that rank 0 waits for (`awaited`; -1: none). A rank that has left is null in `ranks`.
std::vector<int> find_hung(const std::vector<std::optional<RankState>>& ranks, int awaited);

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
