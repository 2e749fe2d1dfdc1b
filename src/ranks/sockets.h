// SPDX-License-Identifier: MIT
// TCP connections between the processes of a run, and the frames that go over them.
#pragma once

#include "kernels/diagnostics/pace.h"
#include "src/files/descriptor.h"
#include "src/files/files.h"
#include "src/ranks/process_group.h"

#include <chrono>
#include <string>
#include <vector>

namespace weft {
// Listens on a port; on loopback alone when all ranks are on this host and `address` is this
// host's. Throws Error when the port is taken.
Descriptor listen_on(const std::string& address, int port, bool all_on_this_host = true);
// A port of the loopback interface that stays reserved while `holder` is open. It is bound without
// a listener, so that rank 0 can listen there (both set SO_REUSEADDR). Throws Error when none is
// free.
int reserve_port(Descriptor& holder);
// The next connection that is opened by `deadline`; an empty Descriptor after it.
Descriptor accept_from(const Descriptor& listener, Clock::time_point deadline);
// Why the name of a host cannot be resolved; "" when it can.
std::string host_trouble(const std::string& host);
// A connection to address:port, or none by `deadline`, and then `why` says what stood in the way.
Descriptor connect_to(const std::string& address, int port, Clock::time_point deadline,
                      std::string& why);

// What a frame is. Numbers are part of what processes agree on: only ever add.
enum class Kind : uint32_t {
  hello = 1,    // a rank introduces itself to rank 0
  welcome = 2,  // from rank 0: all ranks are connected; their names
  refusal = 3,  // from rank 0: the run cannot start
  gather = 4,
  broadcast = 5,
  beat = 6,     // a rank's RankState
  goodbye = 7,  // a rank leaves as planned
  failed = 8,   // a rank failed; the reason
  end = 9,      // from rank 0: every process ends now
  other = 10,   // from rank 0: this is another run; try again later
};

struct Frame {
  Kind kind = Kind::hello;
  std::string body = {};
  uint64_t number = 0;  // of the collective
};

// Send or receive one whole frame and block until it is done. False when the connection is closed,
// or when what came is no frame of at most `longest` bytes.
bool send_frame(const Descriptor&, Kind, const std::string& body, uint64_t number = 0);
bool receive_frame(const Descriptor&, Frame&, uint64_t longest);
// After this time without a byte, calls on the connection fail; 0: never.
void set_patience(const Descriptor&, std::chrono::seconds);

// pack() joins strings into one; unpack() splits it, and returns false for any other string.
std::string pack(const std::vector<std::string>& fields);
bool unpack(const std::string& packed, std::vector<std::string>& fields);

// ---- how the processes of a run meet: rank 0 listens; others open two connections, messages and
// watch

struct Peer {
  int rank = 0;
  std::string host = {}, pid = {};
  std::string name() const;  // "rank 2 (node1, pid 4711)"
};

struct Meeting {
  std::vector<Peer> peers;  // by rank
  // by rank on rank 0; the others have one of each, to rank 0
  std::vector<Descriptor> words, watch;
};

// Connects all ranks with rank 0. Throws Error on rank 0 when the world is not complete within
// `patience`: one line names the ranks that are missing, doubled, or differ in `identity` or in
// size. The other ranks leave_quietly(). Of ranks that never reach rank 0, rank 1 and the first of
// each host throw.
Meeting meet(const World&, const std::string& identity, std::chrono::seconds patience);

[[noreturn]] void leave_quietly();  // exit code 1: another process has said why
}  // namespace weft
