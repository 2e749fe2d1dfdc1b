// SPDX-License-Identifier: MIT
// How the processes of a run meet: rank 0 listens; each other rank opens two connections, messages and watch.
#pragma once

#include "src/ranks/sockets.h"
#include "src/ranks/world.h"

namespace weft {

struct Peer {
  int rank = 0;
  std::string host = {}, pid = {};
  std::string name() const;  // "rank 2 (node1, pid 4711)"
};

struct Meeting {
  std::vector<Peer> peers;               // by rank
  std::vector<Descriptor> words, watch;  // by rank on rank 0; the others have one of each, to rank 0
};

// Throws Error on rank 0 when the world is not complete or not right within `patience`: one line that names
// the ranks that are missing, double, or differ in lines of `identity` or size. The others leave quietly; of
// those that never reach rank 0, rank 1 and the first of each host throw.
Meeting meet(const World&, const std::string& identity, std::chrono::seconds patience);

[[noreturn]] void leave_quietly();  // exit code 1: another process has said why

std::string host_name();

}  // namespace weft
