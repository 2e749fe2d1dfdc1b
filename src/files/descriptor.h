// SPDX-License-Identifier: MIT
// A file descriptor that closes itself, and bytes over a connection.
#pragma once

#include <cerrno>
#include <cstddef>
#include <utility>

namespace weft {
// Repeats a system call while signals interrupt it, and returns its result. On some file systems
// signals interrupt any call.
template <class Call>
auto uninterrupted(Call call) {
  for (;;)
    if (const auto result = call(); result >= 0 || errno != EINTR) return result;
}

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int number = -1)
      : number_(number) {}

  Descriptor(Descriptor&& other) noexcept
      : Descriptor(std::exchange(other.number_, -1)) {}

  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  ~Descriptor() { close(); }

  int get() const { return number_; }

  explicit operator bool() const { return number_ >= 0; }

  int close();  // what the system call returns

 private:
  int number_;
};

// Send or receive all bytes over a connection. False: it is closed, or its time limit has passed.
bool send_all(int socket, const void* bytes, std::size_t size, int flags = 0);
bool receive_all(int socket, void* bytes, std::size_t size);
}  // namespace weft
