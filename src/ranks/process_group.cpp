// SPDX-License-Identifier: MIT
// Collectives of byte strings: a star through rank 0.
#include "src/ranks/process_group.h"

#include "src/files/descriptor.h"
#include "src/files/error_line.h"
#include "src/ranks/watcher.h"

#include <cstddef>
#include <exception>
#include <string>
#include <thread>
#include <utility>

namespace weft {
namespace {
constexpr std::size_t kLongestIdentity = 1 << 19, kLongestText = 8192;  // the latter of errors

const char* name_of(Kind kind) { return kind == Kind::gather ? "a gather" : "a broadcast"; }
}  // namespace

struct ProcessGroup::State {
  World world;
  Meeting meeting;
  std::unique_ptr<Watcher> watcher;  // none of a process alone
  uint64_t number = 0;               // of collectives so far
  int exceptions = std::uncaught_exceptions();

  const Peer& peer(int rank) const { return meeting.peers[rank]; }

  const Descriptor& to(int rank) const { return meeting.words[rank]; }

  void change(const std::function<void(Pace&)>& change) const {
    if (watcher) watcher->change(change);
  }

  struct Waiting {
    const State& state;

    Waiting(const State& of, int rank)
        : state(of) {
      await(rank);
    }

    Waiting& operator=(Waiting&&) = delete;

    ~Waiting() { await(-1); }

    void await(int rank) const {
      state.change(
          [&](Pace& p) { p.come_further(), p.awaited = rank, p.known.waiting = rank >= 0; });
    }
  };

  // The watcher ends this process meanwhile if that rank is dead.
  [[noreturn]] void lost(int rank) const {
    std::this_thread::sleep_for(std::chrono::seconds(5));
    weft::fail(peer(rank).name(), " has left ", watcher->where(), ", and rank ", world.rank,
               " still expects something of it");
  }

  void end_collective() const {
    change([&](Pace& p) { p.known.collectives = number; });
  }

  void send(int rank, Kind kind, const std::string& body) const {
    const Waiting waiting(*this, rank);
    if (!send_frame(to(rank), kind, body, number)) lost(rank);
  }

  std::string receive(int rank, Kind kind) const {
    const Waiting waiting(*this, rank);
    Frame frame;
    if (!receive_frame(to(rank), frame, ~uint64_t{0})) lost(rank);
    if (frame.kind != kind || frame.number != number)
      weft::fail("ranks disagree on what to do: rank ", world.rank, " is at collective ", number,
                 ", ", name_of(kind), ", and ", peer(rank).name(), " at collective ", frame.number,
                 ", ", name_of(frame.kind));
    return std::move(frame.body);
  }
};

ProcessGroup::ProcessGroup(const World& world, const std::string& identity,
                           std::chrono::seconds patience)
    : state_(std::make_unique<State>()) {
  state_->world = world;
  if (world.size == 1) return;
  WEFT_CHECK(identity.size() <= kLongestIdentity, "the identity of a rank has at most ",
             kLongestIdentity, " bytes, got ", identity.size());
  state_->meeting = meet(world, identity, patience);
  state_->watcher = std::make_unique<Watcher>(world.rank, world.local_rank, state_->meeting.peers,
                                              std::move(state_->meeting.watch));
}

ProcessGroup::~ProcessGroup() {
  if (std::uncaught_exceptions() > state_->exceptions) fail("it ended with an error");
}

const World& ProcessGroup::world() const { return state_->world; }

std::vector<std::string> ProcessGroup::gather(const std::string& mine) {
  ++state_->number;
  std::vector<std::string> all;
  if (rank() != 0) {
    state_->send(0, Kind::gather, mine);
  } else {
    all.push_back(mine);
    for (int rank = 1; rank < size(); ++rank) all.push_back(state_->receive(rank, Kind::gather));
  }
  state_->end_collective();
  return all;
}

std::string ProcessGroup::broadcast(const std::string& of_rank_0) {
  ++state_->number;
  std::string text = rank() == 0 ? of_rank_0 : state_->receive(0, Kind::broadcast);
  if (rank() == 0)
    for (int rank = 1; rank < size(); ++rank) state_->send(rank, Kind::broadcast, text);
  state_->end_collective();
  return text;
}

std::vector<std::string> ProcessGroup::all_gather(const std::string& mine) {
  std::vector<std::string> all = gather(mine);
  if (size() == 1) return all;
  const std::string packed = broadcast(pack(all));
  if (rank() != 0)
    WEFT_CHECK(unpack(packed, all) && all.size() == static_cast<std::size_t>(size()),
               "rank 0 has sent no answer for each of ", size(), " ranks");
  return all;
}

void ProcessGroup::barrier() { all_gather(""); }

void ProcessGroup::require_all(const std::string& trouble) {
  const std::vector<std::string> troubles = all_gather(trouble);
  std::string line;
  for (std::size_t rank = 0; rank < troubles.size(); ++rank) {
    if (troubles[rank].empty()) continue;
    line +=
        str(line.empty() ? "" : "; ", size() == 1 ? "" : str("rank ", rank, ": "), troubles[rank]);
  }
  if (line.empty()) return;
  if (size() == 1) weft::fail(line);
  if (rank() == 0) print_error_line(line);
  state_->watcher->goodbye();
  leave_quietly();
}

void ProcessGroup::fail(const std::string& why, const std::string& line) noexcept {
  if (state_->watcher)
    state_->watcher->fail(why.empty() ? "an error" : why.substr(0, kLongestText), line);
}

void ProcessGroup::watch(std::chrono::seconds limit) {
  state_->change([&](Pace& p) { p.limit = limit, p.restart(); });
}

void ProcessGroup::report_step(int64_t step) {
  state_->change([&](Pace& p) { p.finish_step(step); });
}

void ProcessGroup::report_progress() { state_->change(&Pace::come_further); }

void ProcessGroup::take_time() { state_->change(&Pace::restart); }
}  // namespace weft
