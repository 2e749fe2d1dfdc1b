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
// The ranks that hold up the others beyond their time, or none: those at the lowest step outside
// collectives; where all wait, the one that rank 0 waits for (`awaited`, or -1). Null: has left.
std::vector<int> find_hung(const std::vector<std::optional<RankState>>& ranks, int awaited);

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
