// SPDX-License-Identifier: MIT
#include "src/ranks/sockets.h"

#include "src/config/names.h"
#include "src/files/descriptor.h"
#include "src/files/files.h"

#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sstream>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace weft {
namespace {
using std::chrono::milliseconds;
using std::chrono::seconds;

struct FrameHeader {  // in the byte order of the machine
  uint64_t magic = kMagic;
  Kind kind = Kind::hello;
  uint32_t reserved = 0;
  uint64_t number = 0, bytes = 0;  // bytes that follow

  static constexpr uint64_t kMagic = 0x316e757274666577;  // "weftrun1" in memory
};

std::string error_text(int code) { return std::strerror(code); }

bool resolve(const std::string& host, int port, sockaddr_in& out, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(host.c_str(), nullptr, &hints, &found); code != 0) {
    why = str("the host '", host, "' is not known here: ", gai_strerror(code));
    return false;
  }
  std::memcpy(&out, found->ai_addr, sizeof out);
  freeaddrinfo(found);
  out.sin_port = htons(static_cast<uint16_t>(port));
  return true;
}

const sockaddr* generic(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

template <class Value>
void set_option(const Descriptor& socket, int level, int name, const Value& value) {
  setsockopt(socket.get(), level, name, &value, sizeof value);
}

// ---- Rank 0 receives; the others visit. What does not speak like a rank is let in, and sent away.

constexpr uint64_t kLongestGreeting = 1 << 20;  // bytes of a frame

enum : std::size_t { kRank, kSize, kChannel, kHost, kPid, kRun, kIdentity, kHelloFields };

std::string hello(const World& world, const char* channel, const std::string& identity) {
  return pack({std::to_string(world.rank), std::to_string(world.size), channel, host_name(),
               std::to_string(getpid()), world.run, identity});
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
    if (std::ranges::find(others, line) != others.end() || ++count > kMost) continue;
    beside +=
        (count > 1 ? ", " : "") + line.substr(std::min(line.find_first_not_of(' '), line.size()));
  }
  if (count == 0) return "nothing else, or in another order";
  return str("'", beside, count > kMost ? " ..." : "", "'");
}

class Reception {
 public:
  Reception(const World& world, const std::string& identity)
      : world_(world),
        identity_(identity) {
    const auto size = static_cast<std::size_t>(world.size);
    meeting_.words.resize(size);
    meeting_.watch.resize(size);
    for (int rank = 0; rank < world.size; ++rank) meeting_.peers.push_back({rank});
    meeting_.peers[0] = {0, host_name(), std::to_string(getpid())};
  }

  Meeting run(seconds patience) {
    const Descriptor listener =
        listen_on(world_.address, world_.port, world_.local_size == world_.size);
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
    if (receive_frame(visitor, frame, kLongestGreeting) && frame.kind == Kind::hello &&
        unpack(frame.body, fields) && fields.size() == kHelloFields) {
      if (fields[kRun] == world_.run)
        seat(std::move(visitor), fields);
      else
        send_frame(visitor, Kind::other, "");
    }
  }

  void seat(Descriptor visitor, const std::vector<std::string>& hello) {
    const Peer guest{std::atoi(hello[kRank].c_str()), hello[kHost], hello[kPid]};
    const auto turn_away = [&](const std::string& why) {
      const std::string line = str(guest.name(), ' ', why);
      if (std::ranges::find(troubles_, line) == troubles_.end()) troubles_.push_back(line);
      turned_away_.push_back(std::move(visitor));
    };
    if (hello[kSize] != std::to_string(world_.size) || guest.rank < 1 || guest.rank >= world_.size)
      return turn_away(str("takes itself for rank ", guest.rank, " of ", hello[kSize],
                           ", rank 0 for one of ", world_.size));
    const auto rank = static_cast<std::size_t>(guest.rank);
    Peer& known = meeting_.peers[rank];
    if (!known.pid.empty() && (known.host != guest.host || known.pid != guest.pid))
      return turn_away(
          str("is there twice, the other one being on ", known.host, ", pid ", known.pid));
    if (hello[kIdentity] != identity_)
      return turn_away(str("runs something else: ", lines_beside(hello[kIdentity], identity_),
                           ", rank 0 ", lines_beside(identity_, hello[kIdentity])));
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
         " s: ",
         unknown.empty() ? "was every process started, and can its host reach this one?" : unknown);
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
                          receive_frame(words, answer, kLongestGreeting);
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
    why = answered && answer.kind == Kind::other
              ? "another run has this port; choose another one (MASTER_PORT)"
              : "what listens there does not answer as rank 0 does";
    std::this_thread::sleep_for(milliseconds(200));
  }
  if (world.rank != 1 && world.local_rank != 0) leave_quietly();  // others say it
  fail("rank ", world.rank, " did not reach rank 0 at ", world.address, ':', world.port, " within ",
       patience.count(), " s: ", why);
}
}  // namespace

std::string host_trouble(const std::string& host) {
  sockaddr_in found{};
  std::string why;
  resolve(host, 0, found, why);
  return why;
}

Descriptor listen_on(const std::string& address, int port, bool all_on_this_host) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_ANY);
  where.sin_port = htons(static_cast<uint16_t>(port));
  sockaddr_in named{};
  std::string unknown;
  if (all_on_this_host && resolve(address, port, named, unknown) &&
      ntohl(named.sin_addr.s_addr) >> 24 == 127)
    where = named;
  // A rank that came too early may have been given this very port as its own, for a moment. Another
  // run may have it until its ranks have met.
  const Clock::time_point deadline = Clock::now() + seconds(3);
  for (;;) {
    Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener) fail("rank 0 cannot open a socket: ", error_text(errno));
    set_option(listener, SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(listener.get(), generic(where), sizeof where) == 0 &&
        listen(listener.get(), SOMAXCONN) == 0)
      return listener;
    if (errno != EADDRINUSE || Clock::now() > deadline) break;
    std::this_thread::sleep_for(milliseconds(50));
  }
  fail("rank 0 cannot listen at ", address, ':', port, ": ",
       errno == EADDRINUSE
           ? "the port is taken by another program, or by another process that is rank 0 "
             "too; choose another one (MASTER_PORT)"
           : error_text(errno));
}

int reserve_port(Descriptor& holder) {
  const auto checked = [](int result) {
    if (result < 0) fail("no free port on 127.0.0.1: ", error_text(errno));
    return result;
  };
  holder = Descriptor(checked(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  set_option(holder, SOL_SOCKET, SO_REUSEADDR, 1);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof where;
  checked(bind(holder.get(), generic(where), size));
  checked(getsockname(holder.get(), reinterpret_cast<sockaddr*>(&where), &size));
  return ntohs(where.sin_port);
}

Descriptor accept_from(const Descriptor& listener, Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<milliseconds>(deadline - Clock::now()) + milliseconds(1);
  pollfd waiting{listener.get(), POLLIN, 0};
  if (poll(&waiting, 1, static_cast<int>(std::max<int64_t>(left.count(), 0))) <= 0)
    return Descriptor();
  Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket) set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  return socket;
}

Descriptor connect_to(const std::string& address, int port, Clock::time_point deadline,
                      std::string& why) {
  for (milliseconds pause(10);; pause = std::min(pause * 2, milliseconds(250))) {
    sockaddr_in where{};
    if (resolve(address, port, where, why)) {
      Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (!socket) fail("cannot open a socket: ", error_text(errno));
      set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
      set_option(socket, SOL_SOCKET, SO_SNDTIMEO, timeval{2, 0});  // of the attempt
      if (connect(socket.get(), generic(where), sizeof where) == 0) {
        set_patience(socket, std::chrono::seconds(0));
        return socket;
      }
      why = error_text(errno == EINPROGRESS ? ETIMEDOUT : errno);
    }
    if (Clock::now() + pause > deadline) return Descriptor();
    std::this_thread::sleep_for(pause);
  }
}

bool send_frame(const Descriptor& socket, Kind kind, const std::string& body, uint64_t number) {
  const FrameHeader header{.kind = kind, .number = number, .bytes = body.size()};
  return send_all(socket.get(), &header, sizeof header, body.empty() ? 0 : MSG_MORE) &&
         send_all(socket.get(), body.data(), body.size());
}

bool receive_frame(const Descriptor& socket, Frame& frame, uint64_t longest) {
  FrameHeader header;
  if (!receive_all(socket.get(), &header, sizeof header) || header.magic != FrameHeader::kMagic)
    return false;
  if (header.bytes > longest) return false;
  frame = {header.kind, std::string(header.bytes, '\0'), header.number};
  return receive_all(socket.get(), frame.body.data(), frame.body.size());
}

void set_patience(const Descriptor& socket, std::chrono::seconds patience) {
  const timeval limit{static_cast<time_t>(patience.count()), 0};
  set_option(socket, SOL_SOCKET, SO_RCVTIMEO, limit);
  set_option(socket, SOL_SOCKET, SO_SNDTIMEO, limit);
}

std::string pack(const std::vector<std::string>& fields) {
  std::string packed;
  for (const std::string& field : fields) {
    const uint64_t length = field.size();
    packed.append(reinterpret_cast<const char*>(&length), sizeof length);
    packed += field;
  }
  return packed;
}

bool unpack(const std::string& packed, std::vector<std::string>& fields) {
  fields.clear();
  for (std::size_t at = 0; at < packed.size();) {
    uint64_t length = 0;
    if (packed.size() - at < sizeof length) return false;
    std::memcpy(&length, packed.data() + at, sizeof length);
    at += sizeof length;
    if (packed.size() - at < length) return false;
    fields.push_back(packed.substr(at, length));
    at += length;
  }
  return true;
}

std::string Peer::name() const { return str("rank ", rank, " (", host, ", pid ", pid, ")"); }

Meeting meet(const World& world, const std::string& identity, seconds patience) {
  // On several hosts a name may appear late, or be known on the others alone.
  const bool one_host = world.local_size == world.size;
  if (const std::string unknown = one_host ? host_trouble(world.address) : ""; !unknown.empty()) {
    if (world.rank == 0) fail("MASTER_ADDR: " + unknown);
    std::this_thread::sleep_for(seconds(2));
    leave_quietly();
  }
  return world.rank == 0 ? Reception(world, identity).run(patience)
                         : visit(world, identity, patience);
}

void leave_quietly() {
  std::fflush(nullptr);
  _exit(1);
}
}  // namespace weft
