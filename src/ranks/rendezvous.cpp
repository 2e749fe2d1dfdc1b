// SPDX-License-Identifier: MIT
// Rank 0 receives; the others visit. What does not speak like a rank is let in, and sent away.
#include "src/ranks/rendezvous.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "src/config/names.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kLongest = 1 << 20;  // bytes of a frame

enum : std::size_t { kRank, kSize, kChannel, kHost, kPid, kIdentity, kHelloFields };

std::string hello(const World& world, const char* channel, const std::string& identity) {
  return pack({std::to_string(world.rank), std::to_string(world.size), channel, host_name(),
               std::to_string(getpid()), identity});
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The first lines of `text` that `other` has not, quoted.
std::string lines_beside(const std::string& text, const std::string& other) {
  constexpr int kMost = 3;
  std::string beside;
  int count = 0;
  const std::vector<std::string> others = lines_of(other);
  for (const std::string& line : lines_of(text)) {
    if (std::find(others.begin(), others.end(), line) != others.end() || ++count > kMost) continue;
    beside += (count > 1 ? ", " : "") + line.substr(std::min(line.find_first_not_of(' '), line.size()));
  }
  if (count == 0) return "nothing else, or in another order";
  return str("'", beside, count > kMost ? " ..." : "", "'");
}

class Reception {
 public:
  Reception(const World& world, const std::string& identity) : world_(world), identity_(identity) {
    const auto size = static_cast<std::size_t>(world.size);
    meeting_.words.resize(size);
    meeting_.watch.resize(size);
    for (int rank = 0; rank < world.size; ++rank) meeting_.peers.push_back({rank});
    meeting_.peers[0] = {0, host_name(), std::to_string(getpid())};
  }

  Meeting run(seconds patience) {
    const Descriptor listener = listen_on(world_.address, world_.port, world_.local_size == world_.size);
    Clock::time_point deadline = Clock::now() + patience;
    bool in_trouble = false;
    while (!missing().empty() && Clock::now() < deadline) {
      if (Descriptor visitor = accept_from(listener, deadline)) hear(std::move(visitor));
      if (troubles_.empty() || in_trouble) continue;
      in_trouble = true;  // others may differ too: they are named in the same line
      deadline = std::min(deadline, Clock::now() + milliseconds(1500));
    }
    if (!troubles_.empty() || !missing().empty()) refuse(patience);
    welcome();
    return std::move(meeting_);
  }

 private:
  std::vector<std::string> missing() const {
    std::vector<std::string> ranks;
    for (std::size_t rank = 1; rank < meeting_.peers.size(); ++rank)
      if (!meeting_.words[rank] || !meeting_.watch[rank]) ranks.push_back(std::to_string(rank));
    return ranks;
  }

  void hear(Descriptor visitor) {
    set_patience(visitor, seconds(1));
    Frame frame;
    std::vector<std::string> fields;
    if (receive_frame(visitor, frame, kLongest) && frame.kind == Kind::hello && unpack(frame.body, fields) &&
        fields.size() == kHelloFields)
      seat(std::move(visitor), fields);
  }

  void seat(Descriptor visitor, const std::vector<std::string>& hello) {
    const Peer guest{std::atoi(hello[kRank].c_str()), hello[kHost], hello[kPid]};
    const auto turn_away = [&](const std::string& why) {
      const std::string line = str(guest.name(), ' ', why);
      if (std::find(troubles_.begin(), troubles_.end(), line) == troubles_.end()) troubles_.push_back(line);
      turned_away_.push_back(std::move(visitor));
    };
    if (hello[kSize] != std::to_string(world_.size) || guest.rank < 1 || guest.rank >= world_.size)
      return turn_away(str("takes itself for rank ", guest.rank, " of ", hello[kSize], ", rank 0 for one of ",
                           world_.size));
    const auto rank = static_cast<std::size_t>(guest.rank);
    Peer& known = meeting_.peers[rank];
    if (!known.pid.empty() && (known.host != guest.host || known.pid != guest.pid))
      return turn_away(str("is there twice, the other one being on ", known.host, ", pid ", known.pid));
    if (hello[kIdentity] != identity_)
      return turn_away(str("runs something else: ", lines_beside(hello[kIdentity], identity_), ", rank 0 ",
                           lines_beside(identity_, hello[kIdentity])));
    known = guest;
    set_patience(visitor, seconds(0));
    (hello[kChannel] == "watch" ? meeting_.watch : meeting_.words)[rank] = std::move(visitor);
  }

  [[noreturn]] void refuse(seconds patience) {
    for (const auto* guests : {&meeting_.words, &turned_away_})
      for (const Descriptor& guest : *guests)
        if (guest) send_frame(guest, Kind::refusal, "");
    if (!troubles_.empty()) {
      std::string line = "the processes do not belong together: ";
      for (std::size_t i = 0; i < troubles_.size(); ++i) line += (i ? "; " : "") + troubles_[i];
      fail(line);
    }
    const std::string unknown = host_trouble(world_.address);
    fail(missing().size() == 1 ? "rank " : "ranks ", listed(missing()), " of ", world_.size,
         " did not come to ", world_.address, ':', world_.port, " within ", patience.count(),
         " s: ", unknown.empty() ? "was every process started, and can its host reach this one?" : unknown);
  }

  void welcome() const {
    std::vector<std::string> everyone;
    for (const Peer& peer : meeting_.peers) everyone.insert(everyone.end(), {peer.host, peer.pid});
    for (std::size_t rank = 1; rank < meeting_.words.size(); ++rank)
      if (!send_frame(meeting_.words[rank], Kind::welcome, pack(everyone)))
        fail(meeting_.peers[rank].name() + " has left before all were there");
  }

  const World& world_;
  const std::string& identity_;
  Meeting meeting_;
  std::vector<std::string> troubles_;
  std::vector<Descriptor> turned_away_;
};

Meeting visit(const World& world, const std::string& identity, seconds patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  std::string why = "no answer";
  while (Clock::now() < deadline) {
    Meeting meeting;
    Descriptor words = connect_to(world.address, world.port, deadline, why);
    Descriptor watch = words ? connect_to(world.address, world.port, deadline, why) : Descriptor();
    if (!watch) continue;
    set_patience(words, patience);
    // Rank 0 closes one that it could not hear, and gives up before this rank does.
    pollfd both[] = {{words.get(), POLLIN, 0}, {watch.get(), POLLRDHUP, 0}};
    const auto longest = static_cast<int>(1000 * (patience.count() + 5));
    Frame answer;
    const bool answered = send_frame(words, Kind::hello, hello(world, "words", identity)) &&
                          send_frame(watch, Kind::hello, hello(world, "watch", identity)) &&
                          poll(both, 2, longest) > 0 && both[0].revents != 0 &&
                          receive_frame(words, answer, kLongest);
    if (answered && answer.kind == Kind::refusal) {
      std::this_thread::sleep_for(seconds(1));  // rank 0 speaks before a launcher ends it
      leave_quietly();
    }
    std::vector<std::string> fields;
    if (answered && answer.kind == Kind::welcome && unpack(answer.body, fields) &&
        fields.size() == 2 * static_cast<std::size_t>(world.size)) {
      set_patience(words, seconds(0));
      for (std::size_t i = 0; i < fields.size(); i += 2)
        meeting.peers.push_back({static_cast<int>(i / 2), fields[i], fields[i + 1]});
      meeting.words.push_back(std::move(words));
      meeting.watch.push_back(std::move(watch));
      return meeting;
    }
    why = "what listens there does not answer as rank 0 does";
    std::this_thread::sleep_for(milliseconds(200));
  }
  if (world.rank != 1 && world.local_rank != 0) leave_quietly();  // others say it
  fail("rank ", world.rank, " did not reach rank 0 at ", world.address, ':', world.port, " within ",
       patience.count(), " s: ", why);
}

}  // namespace

std::string Peer::name() const { return str("rank ", rank, " (", host, ", pid ", pid, ")"); }

Meeting meet(const World& world, const std::string& identity, seconds patience) {
  // On several hosts a name may appear late, or be known on the others alone.
  const bool one_host = world.local_size == world.size;
  if (const std::string unknown = one_host ? host_trouble(world.address) : ""; !unknown.empty()) {
    if (world.rank == 0) fail("MASTER_ADDR: " + unknown);
    std::this_thread::sleep_for(seconds(2));
    leave_quietly();
  }
  return world.rank == 0 ? Reception(world, identity).run(patience) : visit(world, identity, patience);
}

void leave_quietly() {
  std::fflush(nullptr);
  _exit(1);
}

std::string host_name() {
  char name[256] = "?";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace weft
