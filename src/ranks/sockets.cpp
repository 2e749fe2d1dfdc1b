// SPDX-License-Identifier: MIT
// POSIX sockets, IPv4.
#include "src/ranks/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/view.h"

namespace weft {
namespace {

using std::chrono::milliseconds;

std::string error_text(int code) { return std::strerror(code); }

// The IPv4 address of a host. False: `why` says that the name is not known.
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

void send_small_messages_at_once(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// A client that tries a port of this host at which nobody listens can be given that very port as its own, and
// then is connected with itself.
bool connected_with_itself(const Socket& socket) {
  sockaddr_in here{}, there{};
  socklen_t length = sizeof here;
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&here), &length) != 0) return false;
  length = sizeof there;
  if (getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&there), &length) != 0) return false;
  return here.sin_port == there.sin_port && here.sin_addr.s_addr == there.sin_addr.s_addr;
}

// One attempt, of two seconds at most. 0 or errno.
int try_connect(const Socket& socket, const sockaddr_in& address, Clock::time_point deadline) {
  const int flags = fcntl(socket.fd(), F_GETFL);
  fcntl(socket.fd(), F_SETFL, flags | O_NONBLOCK);
  if (connect(socket.fd(), generic(address), sizeof address) != 0) {
    if (errno != EINPROGRESS) return errno;
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    pollfd waiting{socket.fd(), POLLOUT, 0};
    const auto patience = std::clamp(left, milliseconds(1), milliseconds(2000));
    if (poll(&waiting, 1, static_cast<int>(patience.count())) <= 0) return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return error;
  }
  fcntl(socket.fd(), F_SETFL, flags);
  if (!connected_with_itself(socket)) return 0;
  const linger reset{1, 0};  // gives the port back at once
  setsockopt(socket.fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  return ECONNREFUSED;
}

bool send_bytes(const Socket& socket, const void* from, std::size_t bytes, int flags) {
  const char* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t sent = send(socket.fd(), at, bytes, MSG_NOSIGNAL | flags);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = other.release();
  }
  return *this;
}

int Socket::release() { return std::exchange(fd_, -1); }

void Socket::close() {
  if (fd_ >= 0) ::close(release());
}

Socket listen_on(const std::string& address, int port, bool all_on_this_host) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_ANY);
  where.sin_port = htons(static_cast<std::uint16_t>(port));
  sockaddr_in named{};
  std::string unknown;
  if (all_on_this_host && resolve(address, port, named, unknown) && ntohl(named.sin_addr.s_addr) >> 24 == 127)
    where = named;
  Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) fail(str("rank 0 cannot open a socket: ", error_text(errno)));
  const int on = 1;
  setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // A rank that tried to connect may hold the port for a moment (connected_with_itself).
  const Clock::time_point deadline = Clock::now() + milliseconds(500);
  for (;;) {
    if (bind(listener.fd(), generic(where), sizeof where) == 0 && listen(listener.fd(), SOMAXCONN) == 0)
      return listener;
    if (errno != EADDRINUSE || Clock::now() > deadline) break;
    std::this_thread::sleep_for(milliseconds(50));
  }
  if (errno == EADDRINUSE)
    fail(str("rank 0 cannot listen at ", address, ':', port,
             ": the port is taken by another program, or by another process that is rank 0 too; choose "
             "another one "
             "(MASTER_PORT)"));
  fail(str("rank 0 cannot listen at ", address, ':', port, ": ", error_text(errno)));
}

Socket connect_to(const std::string& address, int port, Clock::time_point deadline, std::string& why) {
  for (milliseconds pause(10);; pause = std::min(pause * 2, milliseconds(250))) {
    sockaddr_in where{};
    if (resolve(address, port, where, why)) {
      Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (!socket) fail(str("cannot open a socket: ", error_text(errno)));
      const int error = try_connect(socket, where, deadline);
      if (error == 0) {
        send_small_messages_at_once(socket);
        return socket;
      }
      why = error_text(error);
    }
    if (Clock::now() + pause > deadline) return {};
    std::this_thread::sleep_for(pause);
  }
}

Socket accept_from(const Socket& listener) {
  Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket) send_small_messages_at_once(socket);
  return socket;
}

bool send_frame(const Socket& socket, Kind kind, std::uint64_t number, const std::string& body, bool more) {
  const FrameHeader header{.kind = kind, .number = number, .bytes = body.size()};
  const int more_follows = more ? MSG_MORE : 0;
  return send_bytes(socket, &header, sizeof header, body.empty() ? more_follows : MSG_MORE) &&
         send_bytes(socket, body.data(), body.size(), more_follows);
}

bool receive_bytes(const Socket& socket, void* to, std::size_t bytes) {
  char* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = recv(socket.fd(), at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool receive_header(const Socket& socket, FrameHeader& header) {
  return receive_bytes(socket, &header, sizeof header) && header.magic == FrameHeader::kMagic;
}

void set_patience(const Socket& socket, std::chrono::seconds patience) {
  const timeval limit{static_cast<time_t>(patience.count()), 0};
  setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

std::string frame(Kind kind, const std::string& body) {
  const FrameHeader header{.kind = kind, .bytes = body.size()};
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + body;
}

bool FrameReader::read(const Socket& socket) {
  char block[4096];
  for (;;) {
    const ssize_t got = recv(socket.fd(), block, sizeof block, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0) return false;
    bytes_.append(block, static_cast<std::size_t>(got));
    if (bytes_.size() > 2 * kLongest) return true;
  }
}

bool FrameReader::next(FrameHeader& header, std::string& body) {
  if (bytes_.size() < sizeof header) {
    const std::uint64_t magic = FrameHeader::kMagic;
    broken_ |= std::memcmp(bytes_.data(), &magic, std::min(bytes_.size(), sizeof magic)) != 0;
    return false;
  }
  std::memcpy(&header, bytes_.data(), sizeof header);
  broken_ |= header.magic != FrameHeader::kMagic || header.bytes > kLongest;
  if (broken_ || bytes_.size() < sizeof header + header.bytes) return false;
  body = bytes_.substr(sizeof header, header.bytes);
  bytes_.erase(0, sizeof header + header.bytes);
  return true;
}

void pack_into(std::string& packed, const std::string& field) {
  const std::uint64_t length = field.size();
  packed.append(reinterpret_cast<const char*>(&length), sizeof length);
  packed += field;
}

std::string pack(std::initializer_list<std::string> fields) {
  std::string packed;
  for (const std::string& field : fields) pack_into(packed, field);
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

std::string host_name() {
  char name[256] = "?";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace weft
