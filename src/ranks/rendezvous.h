// SPDX-License-Identifier: MIT
// How the processes of a run meet: rank 0 listens, every other rank opens two connections to it, one for what
// they say to each other and one over which they watch that all live.
#pragma once

#include <chrono>
#include <string>
#include <vector>

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

// Throws Error on rank 0 when the world does not come about within `patience`, or is not the one that it
// should be: one line that names the ranks that are missing, differ in `identity` or in the world's size, or
// are there twice. The other ranks then leave, without a word, with exit code 1; those that
// never reach rank 0 throw, rank 1 and the first of each host, or leave like that.
Meeting meet(const World&, const std::string& identity, std::chrono::seconds patience);

// Ends this process, exit code 1: another one has said why.
[[noreturn]] void leave_quietly();

// "1", "1 and 4", "1, 2 and 4"
std::string listed(const std::vector<std::string>& words);

}  // namespace weft
