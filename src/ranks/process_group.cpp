// SPDX-License-Identifier: MIT
// Collectives of byte strings: a star through rank 0.
#include "src/ranks/process_group.h"

#include <exception>

#include "kernels/view.h"
#include "src/files/error_line.h"
#include "src/ranks/rendezvous.h"
#include "src/ranks/watcher.h"

namespace weft {
namespace {

constexpr std::size_t kLongestText = 8192;  // of identities and errors

const char* name_of(Kind kind) { return kind == Kind::gather ? "a gather" : "a broadcast"; }

}  // namespace

struct ProcessGroup::State {
  World world;
  Meeting meeting;
  std::unique_ptr<Watcher> watcher;  // none of a process alone
  std::uint64_t number = 0;          // of collectives so far
  int exceptions = std::uncaught_exceptions();

  // The watcher knows of a rank in a collective that it waits for others.
  struct Collective {
    Watcher* watcher;
    explicit Collective(State& state) : watcher(state.watcher.get()) {
      ++state.number;
      if (watcher) watcher->enter_collective();
    }
    Collective(const Collective&) = delete;
    Collective& operator=(const Collective&) = delete;
    ~Collective() {
      if (watcher) watcher->leave_collective();
    }
  };

  const Socket& to(int rank) const { return meeting.words[static_cast<std::size_t>(rank)]; }

  std::string name(int rank) const {
    const Peer& peer = meeting.peers[static_cast<std::size_t>(rank)];
    return str("rank ", rank, " (", peer.host, ", pid ", peer.pid, ")");
  }

  [[noreturn]] void lost(int rank) {
    if (watcher->has_left(rank))
      weft::fail(str(name(rank), " has left, and rank ", world.rank, " still expects something of it"));
    weft::fail(str("the connection with ", name(rank), " broke"));
  }

  void send(int rank, Kind kind, const std::string& body, bool more = false) {
    if (!send_frame(to(rank), kind, number, body, more)) lost(rank);
  }

  std::string receive(int rank, Kind kind) {
    FrameHeader header;
    if (!receive_header(to(rank), header)) lost(rank);
    if (header.kind != kind || header.number != number)
      weft::fail(str("ranks disagree on what to do: rank ", world.rank, " is at collective ", number, ", ",
                     name_of(kind), ", and ", name(rank), " at collective ", header.number, ", ",
                     name_of(header.kind)));
    std::string body(header.bytes, '\0');
    if (!receive_bytes(to(rank), body.data(), body.size())) lost(rank);
    return body;
  }

  std::vector<std::string> gather(const std::string& mine) {
    if (world.rank != 0) {
      send(0, Kind::gather, mine);
      return {};
    }
    std::vector<std::string> all{mine};
    for (int rank = 1; rank < world.size; ++rank) all.push_back(receive(rank, Kind::gather));
    return all;
  }
};

ProcessGroup::ProcessGroup(const World& world, const std::string& identity, std::chrono::seconds patience)
    : state_(std::make_unique<State>()) {
  state_->world = world;
  if (world.size == 1) return;
  WEFT_CHECK(identity.size() <= kLongestText, "the identity of a rank has at most ", kLongestText,
             " bytes, got ", identity.size());
  state_->meeting = meet(world, identity, patience);
  state_->watcher = std::make_unique<Watcher>(world.rank, world.local_rank, state_->meeting.peers,
                                              std::move(state_->meeting.watch));
}

ProcessGroup::~ProcessGroup() {
  if (std::uncaught_exceptions() > state_->exceptions) fail("it ended with an error");
}

const World& ProcessGroup::world() const { return state_->world; }

std::vector<std::string> ProcessGroup::gather(const std::string& mine) {
  const State::Collective collective(*state_);
  return state_->gather(mine);
}

std::vector<std::string> ProcessGroup::all_gather(const std::string& mine) {
  State& s = *state_;
  const State::Collective collective(s);
  std::vector<std::string> all = s.gather(mine);
  all.resize(static_cast<std::size_t>(s.world.size));
  for (std::string& of_rank : all) {
    const bool more = &of_rank != &all.back();
    if (s.world.rank != 0) of_rank = s.receive(0, Kind::broadcast);
    for (int rank = 1; s.world.rank == 0 && rank < s.world.size; ++rank)
      s.send(rank, Kind::broadcast, of_rank, more);
  }
  return all;
}

std::string ProcessGroup::broadcast(const std::string& of_rank_0) {
  State& s = *state_;
  const State::Collective collective(s);
  if (s.world.rank != 0) return s.receive(0, Kind::broadcast);
  for (int rank = 1; rank < s.world.size; ++rank) s.send(rank, Kind::broadcast, of_rank_0);
  return of_rank_0;
}

void ProcessGroup::barrier() { all_gather(""); }

void ProcessGroup::require_all(const std::string& trouble) {
  const std::vector<std::string> troubles = all_gather(trouble);
  std::string line;
  for (std::size_t rank = 0; rank < troubles.size(); ++rank) {
    if (troubles[rank].empty()) continue;
    line += str(line.empty() ? "" : "; ", size() == 1 ? "" : str("rank ", rank, ": "), troubles[rank]);
  }
  if (line.empty()) return;
  if (size() == 1) weft::fail(line);
  if (rank() == 0) print_error_line(line);
  state_->watcher->goodbye();
  leave_quietly();
}

void ProcessGroup::fail(const std::string& why, const std::string& line) noexcept {
  if (state_->watcher) state_->watcher->fail(why.empty() ? "an error" : why.substr(0, kLongestText), line);
}

void ProcessGroup::report_step(std::int64_t step) {
  if (state_->watcher) state_->watcher->report_step(step);
}

void ProcessGroup::watch(std::chrono::seconds limit) {
  if (state_->watcher) state_->watcher->set_limit(limit);
}

}  // namespace weft
