// SPDX-License-Identifier: MIT
#include "src/ranks/sockets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "kernels/view.h"

namespace weft {
namespace {

using std::chrono::milliseconds;

struct FrameHeader {  // in the byte order of the machine
  std::uint64_t magic = kMagic;
  Kind kind = Kind::hello;
  std::uint32_t reserved = 0;
  std::uint64_t number = 0, bytes = 0;  // bytes that follow

  static constexpr std::uint64_t kMagic = 0x316e757274666577;  // "weftrun1" in memory
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
  out.sin_port = htons(static_cast<std::uint16_t>(port));
  return true;
}

const sockaddr* generic(const sockaddr_in& address) { return reinterpret_cast<const sockaddr*>(&address); }

template <class Value>
void set_option(const Descriptor& socket, int level, int name, const Value& value) {
  setsockopt(socket.get(), level, name, &value, sizeof value);
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
  where.sin_port = htons(static_cast<std::uint16_t>(port));
  sockaddr_in named{};
  std::string unknown;
  if (all_on_this_host && resolve(address, port, named, unknown) && ntohl(named.sin_addr.s_addr) >> 24 == 127)
    where = named;
  // A rank that came too early may have been given this very port as its own, for a moment.
  const Clock::time_point deadline = Clock::now() + milliseconds(500);
  for (;;) {
    Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener) fail("rank 0 cannot open a socket: ", error_text(errno));
    set_option(listener, SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(listener.get(), generic(where), sizeof where) == 0 && listen(listener.get(), SOMAXCONN) == 0)
      return listener;
    if (errno != EADDRINUSE || Clock::now() > deadline) break;
    std::this_thread::sleep_for(milliseconds(50));
  }
  fail("rank 0 cannot listen at ", address, ':', port, ": ",
       errno == EADDRINUSE ? "the port is taken by another program, or by another process that is rank 0 "
                             "too; choose another one (MASTER_PORT)"
                           : error_text(errno));
}

Descriptor accept_from(const Descriptor& listener, Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()) + milliseconds(1);
  pollfd waiting{listener.get(), POLLIN, 0};
  if (poll(&waiting, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0))) <= 0) return Descriptor();
  Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket) set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  return socket;
}

Descriptor connect_to(const std::string& address, int port, Clock::time_point deadline, std::string& why) {
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

bool send_frame(const Descriptor& socket, Kind kind, const std::string& body, std::uint64_t number) {
  const FrameHeader header{.kind = kind, .number = number, .bytes = body.size()};
  return send_all(socket.get(), &header, sizeof header, body.empty() ? 0 : MSG_MORE) &&
         send_all(socket.get(), body.data(), body.size());
}

bool receive_frame(const Descriptor& socket, Frame& frame, std::uint64_t longest) {
  FrameHeader header;
  if (!receive_all(socket.get(), &header, sizeof header) || header.magic != FrameHeader::kMagic) return false;
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
    const std::uint64_t length = field.size();
    packed.append(reinterpret_cast<const char*>(&length), sizeof length);
    packed += field;
  }
  return packed;
}

bool unpack(const std::string& packed, std::vector<std::string>& fields) {
  fields.clear();
  for (std::size_t at = 0; at < packed.size();) {
    std::uint64_t length = 0;
    if (packed.size() - at < sizeof length) return false;
    std::memcpy(&length, packed.data() + at, sizeof length);
    at += sizeof length;
    if (packed.size() - at < length) return false;
    fields.push_back(packed.substr(at, length));
    at += length;
  }
  return true;
}

}  // namespace weft
