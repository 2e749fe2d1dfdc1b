// SPDX-License-Identifier: MIT
#include "src/files/descriptor.h"

#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

namespace weft {
int Descriptor::close() { return number_ < 0 ? 0 : ::close(std::exchange(number_, -1)); }

bool send_all(int socket, const void* bytes, std::size_t size, int flags) {
  const char* at = static_cast<const char*>(bytes);
  for (ssize_t n = 0; size > 0; at += n, size -= static_cast<std::size_t>(n))
    if ((n = uninterrupted([&] { return send(socket, at, size, MSG_NOSIGNAL | flags); })) <= 0)
      return false;
  return true;
}

bool receive_all(int socket, void* bytes, std::size_t size) {
  char* at = static_cast<char*>(bytes);
  for (ssize_t n = 0; size > 0; at += n, size -= static_cast<std::size_t>(n))
    if ((n = uninterrupted([&] { return recv(socket, at, size, 0); })) <= 0) return false;
  return true;
}
}  // namespace weft
