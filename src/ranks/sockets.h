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
// Listens, on loopback alone when all are on this host and `address` is there. Error when the port
// is taken.
Descriptor listen_on(const std::string& address, int port, bool all_on_this_host = true);
// The next connection that somebody opens by `deadline`, or none.
Descriptor accept_from(const Descriptor& listener, Clock::time_point deadline);
// "" or why a host is not known here.
std::string host_trouble(const std::string& host);
// A connection to address:port, or none by `deadline`, and then `why` says what stood in the way.
Descriptor connect_to(const std::string& address, int port, Clock::time_point deadline,
                      std::string& why);

// What a frame is. Numbers are part of what processes agree on: only ever add.
enum class Kind : uint32_t {
  hello = 1,    // a rank says who it is
  welcome = 2,  // all are there: who they are
  refusal = 3,  // this world does not come about
  gather = 4,
  broadcast = 5,
  beat = 6,     // of the watch: where this rank is
  goodbye = 7,  // this rank is done
  failed = 8,   // this rank cannot go on: why
  end = 9,      // of rank 0: every process ends now
};

struct Frame {
  Kind kind = Kind::hello;
  std::string body = {};
  uint64_t number = 0;  // of the collective
};

// Whole frames, however long it takes. False: the connection is gone, or no frame of <= `longest`
// bytes came.
bool send_frame(const Descriptor&, Kind, const std::string& body, uint64_t number = 0);
bool receive_frame(const Descriptor&, Frame&, uint64_t longest);
// without a byte for so long, gives up; 0: never
void set_patience(const Descriptor&, std::chrono::seconds);

// Strings as one string, and back; false for one that pack() did not make.
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

// Throws Error on rank 0 when the world is not complete or not right within `patience`: one line
// that names the ranks that are missing, double, or differ in lines of `identity` or size. The
// others leave quietly; of those that never reach rank 0, rank 1 and the first of each host throw.
Meeting meet(const World&, const std::string& identity, std::chrono::seconds patience);

[[noreturn]] void leave_quietly();  // exit code 1: another process has said why
}  // namespace weft
