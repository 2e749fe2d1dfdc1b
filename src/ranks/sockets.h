// SPDX-License-Identifier: MIT
// TCP connections between the processes of a run, and the frames that go over them.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace weft {

using Clock = std::chrono::steady_clock;

// A file descriptor that closes itself.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { close(); }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();

 private:
  int release();
  int fd_ = -1;
};

// Listens for the ranks that look for `address`; on the loopback interface alone when all are on this host
// and it points there (a host's own name may do so, too). Throws Error when the port is taken.
Socket listen_on(const std::string& address, int port, bool all_on_this_host = true);

// A connection to address:port, or none by `deadline`, and then `why` says what stood in the way.
Socket connect_to(const std::string& address, int port, Clock::time_point deadline, std::string& why);

// The next of those who wait to be let in; none when nobody does.
Socket accept_from(const Socket& listener);

// What a frame is. Numbers are part of what processes agree on: only ever add.
enum class Kind : std::uint32_t {
  hello = 1,    // a rank says who it is
  welcome = 2,  // all are there: who they are
  refusal = 3,  // this world does not come about
  gather = 4,
  broadcast = 5,
  beat = 6,     // of the watch: a sign of life
  goodbye = 7,  // this rank is done
  failed = 8,   // this rank cannot go on: why
  end = 9,      // of rank 0: every process ends now
};

// In front of every message, in the byte order of the machine.
struct FrameHeader {
  std::uint64_t magic = kMagic;
  Kind kind = Kind::hello;
  std::uint32_t reserved = 0;
  std::uint64_t number = 0;  // of the collective
  std::uint64_t bytes = 0;   // that follow

  static constexpr std::uint64_t kMagic = 0x316e757274666577;  // "weftrun1" in memory
};

// All of it, however long it takes. False: the connection is gone. `more`: another frame follows at once.
bool send_frame(const Socket&, Kind, std::uint64_t number, const std::string& body, bool more = false);
bool receive_header(const Socket&, FrameHeader&);
bool receive_bytes(const Socket&, void* to, std::size_t bytes);
// After how long without a byte the last two give up; 0: never.
void set_patience(const Socket&, std::chrono::seconds);

// A frame as it goes over the wire.
std::string frame(Kind, const std::string& body);

// Reads what has come without waiting, and takes whole frames out of it.
class FrameReader {
 public:
  // False: the connection is gone.
  bool read(const Socket&);
  // The next whole frame. `broken()` once what came is none of this program's, or longer than `longest`.
  bool next(FrameHeader&, std::string& body);
  bool broken() const { return broken_; }

  static constexpr std::size_t kLongest = std::size_t{1} << 16;

 private:
  std::string bytes_;
  bool broken_ = false;
};

// Strings as one string, and back; `unpacked` is false for one that pack() did not make.
std::string pack(std::initializer_list<std::string> fields);
void pack_into(std::string& packed, const std::string& field);
bool unpack(const std::string& packed, std::vector<std::string>& fields);

std::string host_name();

}  // namespace weft
