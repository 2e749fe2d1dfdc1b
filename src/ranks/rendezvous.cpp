// SPDX-License-Identifier: MIT
// Rank 0 receives; the others visit. What does not speak like a rank is let in, and never heard.
#include "src/ranks/rendezvous.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <thread>

#include "kernels/view.h"

namespace weft {
namespace {

using std::chrono::milliseconds;

enum : std::size_t { kRank, kSize, kChannel, kHost, kPid, kIdentity, kHelloFields };

std::string hello(const World& world, const char* channel, const std::string& identity) {
  return pack({std::to_string(world.rank), std::to_string(world.size), channel, host_name(),
               std::to_string(getpid()), identity});
}

std::string said_of(const Peer& peer) { return str(peer.host, ", pid ", peer.pid); }

// Poll's argument for the time until `deadline`, at most `longest`.
int wait_until(Clock::time_point deadline, milliseconds longest) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()) + milliseconds(1);
  return static_cast<int>(std::clamp(left, milliseconds(0), longest).count());
}

class Reception {
 public:
  Reception(const World& world, const std::string& identity, std::chrono::seconds patience)
      : world_(world),
        identity_(identity),
        patience_(patience),
        guests_(static_cast<std::size_t>(world.size)) {
    guests_[0].peer = {host_name(), std::to_string(getpid())};
  }

  Meeting run() {
    const Socket listener = listen_on(world_.address, world_.port, world_.local_size == world_.size);
    Clock::time_point deadline = Clock::now() + patience_;
    while (!complete() && Clock::now() < deadline) {
      wait_for_news(listener, deadline);
      if (troubles_.empty() || in_trouble_) continue;
      in_trouble_ = true;  // others may differ too: they are named in the same line
      deadline = std::min(deadline, Clock::now() + milliseconds(1500));
    }
    if (!troubles_.empty() || !complete()) refuse();
    return welcome();
  }

 private:
  struct Guest {
    Peer peer;
    Socket words, watch;
    bool there() const { return words && watch; }
  };
  struct Visitor {
    Socket socket;
    FrameReader reader;
  };

  // Every rank is here, or has been and was found to be another one than it should be.
  bool complete() const {
    return std::all_of(guests_.begin() + 1, guests_.end(), [](const Guest& g) { return g.there(); });
  }

  void wait_for_news(const Socket& listener, Clock::time_point deadline) {
    std::vector<pollfd> sockets{{listener.fd(), POLLIN, 0}};
    for (const Visitor& visitor : visitors_) sockets.push_back({visitor.socket.fd(), POLLIN, 0});
    if (poll(sockets.data(), sockets.size(), wait_until(deadline, milliseconds(1000))) <= 0) return;
    const std::size_t before = visitors_.size();
    for (std::size_t i = 0; i < before; ++i) {
      Visitor visitor = std::move(visitors_.front());
      visitors_.pop_front();
      if (sockets[i + 1].revents == 0 || hear(visitor)) visitors_.push_back(std::move(visitor));
    }
    if (sockets[0].revents == 0) return;
    while (Socket socket = accept_from(listener)) visitors_.push_back({std::move(socket), {}});
  }

  // True: the visitor has not said everything yet.
  bool hear(Visitor& visitor) {
    const bool open = visitor.reader.read(visitor.socket);
    FrameHeader header;
    std::string body;
    if (!visitor.reader.next(header, body)) return open && !visitor.reader.broken();
    std::vector<std::string> fields;
    if (header.kind == Kind::hello && unpack(body, fields) && fields.size() == kHelloFields)
      seat(std::move(visitor.socket), fields);
    return false;
  }

  void seat(Socket socket, const std::vector<std::string>& hello) {
    const Peer peer{hello[kHost], hello[kPid]};
    const int rank = std::atoi(hello[kRank].c_str());
    if (hello[kSize] != std::to_string(world_.size) || rank < 1 || rank >= world_.size)
      return turn_away(
          std::move(socket), hello,
          str("takes itself for rank ", rank, " of ", hello[kSize], ", rank 0 for one of ", world_.size));
    Guest& guest = guests_[static_cast<std::size_t>(rank)];
    const bool known = guest.words || guest.watch;
    if (known && (guest.peer.host != peer.host || guest.peer.pid != peer.pid))
      return turn_away(std::move(socket), hello,
                       str("is there twice, the other one being on ", said_of(guest.peer)));
    if (hello[kIdentity] != identity_)
      return turn_away(std::move(socket), hello,
                       str("runs something else: '", hello[kIdentity], "', rank 0 '", identity_, "'"));
    guest.peer = peer;
    (hello[kChannel] == "watch" ? guest.watch : guest.words) = std::move(socket);
  }

  void turn_away(Socket socket, const std::vector<std::string>& hello, const std::string& why) {
    const std::string line = str("rank ", hello[kRank], " (", hello[kHost], ", pid ", hello[kPid], ") ", why);
    if (std::find(troubles_.begin(), troubles_.end(), line) == troubles_.end()) troubles_.push_back(line);
    turned_away_.push_back(std::move(socket));
  }

  [[noreturn]] void refuse() {
    for (Guest& guest : guests_) {
      if (guest.words) send_frame(guest.words, Kind::refusal, 0, "");
    }
    for (const Socket& socket : turned_away_) send_frame(socket, Kind::refusal, 0, "");
    std::vector<std::string> missing;
    for (std::size_t rank = 1; rank < guests_.size(); ++rank)
      if (!guests_[rank].there()) missing.push_back(std::to_string(rank));
    if (!troubles_.empty()) {
      std::string line = "the processes do not belong together: ";
      for (std::size_t i = 0; i < troubles_.size(); ++i) line += (i ? "; " : "") + troubles_[i];
      fail(line);
    }
    fail(str(missing.size() == 1 ? "rank " : "ranks ", listed(missing), " of ", world_.size,
             " did not come to ", world_.address, ':', world_.port, " within ", patience_.count(),
             " s: was every process started, and can its host reach this one?"));
  }

  Meeting welcome() {
    Meeting meeting;
    std::string everyone;
    for (Guest& guest : guests_) {
      pack_into(everyone, guest.peer.host);
      pack_into(everyone, guest.peer.pid);
    }
    for (Guest& guest : guests_) {
      if (guest.words) send_frame(guest.words, Kind::welcome, 0, everyone);
      meeting.peers.push_back(guest.peer);
      meeting.words.push_back(std::move(guest.words));
      meeting.watch.push_back(std::move(guest.watch));
    }
    return meeting;
  }

  const World& world_;
  const std::string& identity_;
  std::chrono::seconds patience_;
  std::vector<Guest> guests_;  // by rank
  std::deque<Visitor> visitors_;
  std::vector<std::string> troubles_;
  std::vector<Socket> turned_away_;
  bool in_trouble_ = false;
};

// Rank 0's answer to a rank and not a byte more; none when it is no longer there, or something else listens
// in its place.
bool answered(const Socket& socket, std::chrono::seconds patience, FrameHeader& header, std::string& body) {
  set_patience(socket, patience);
  if (!receive_header(socket, header) || header.bytes > FrameReader::kLongest) return false;
  body.resize(header.bytes);
  if (!receive_bytes(socket, body.data(), body.size())) return false;
  set_patience(socket, std::chrono::seconds(0));
  return header.kind == Kind::welcome || header.kind == Kind::refusal;
}

Meeting visit(const World& world, const std::string& identity, std::chrono::seconds patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  std::string why = "no answer";
  while (Clock::now() < deadline) {
    Socket words = connect_to(world.address, world.port, deadline, why);
    Socket watch = words ? connect_to(world.address, world.port, deadline, why) : Socket();
    if (!watch) continue;
    FrameHeader header;
    std::string body;
    if (send_frame(words, Kind::hello, 0, hello(world, "words", identity)) &&
        send_frame(watch, Kind::hello, 0, hello(world, "watch", identity)) &&
        // Rank 0 has been listening for a while: it gives up before this rank does.
        answered(words, patience + std::chrono::seconds(5), header, body)) {
      if (header.kind == Kind::refusal) {
        std::this_thread::sleep_for(std::chrono::seconds(1));  // rank 0 speaks before a launcher ends it
        leave_quietly();
      }
      Meeting meeting;
      std::vector<std::string> fields;
      WEFT_CHECK(unpack(body, fields) && fields.size() == 2 * static_cast<std::size_t>(world.size),
                 "rank 0's list of processes is not one of ", world.size);
      for (std::size_t i = 0; i < fields.size(); i += 2) meeting.peers.push_back({fields[i], fields[i + 1]});
      meeting.words.push_back(std::move(words));
      meeting.watch.push_back(std::move(watch));
      return meeting;
    }
    why = "what listens there does not answer as rank 0 does";
    std::this_thread::sleep_for(milliseconds(200));
  }
  if (world.rank != 1 && world.local_rank != 0) leave_quietly();  // others say it
  fail(str("rank ", world.rank, " did not reach rank 0 at ", world.address, ':', world.port, " within ",
           patience.count(), " s: ", why));
}

}  // namespace

Meeting meet(const World& world, const std::string& identity, std::chrono::seconds patience) {
  return world.rank == 0 ? Reception(world, identity, patience).run() : visit(world, identity, patience);
}

void leave_quietly() {
  std::fflush(nullptr);
  _exit(1);
}

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

}  // namespace weft
