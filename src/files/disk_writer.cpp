// SPDX-License-Identifier: MIT
// write() until all is written.
#include "src/files/disk_writer.h"

#include <unistd.h>

#include <cstring>

namespace weft {

std::string disk_error(int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return std::string(std::strerror(error)) + (full ? "; free some space there or write to another disk" : "");
}

int write_all(int file, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t n = uninterrupted([&] { return ::write(file, bytes, size); });
    if (n < 0) return errno;
    if (n == 0) return EIO;  // a file that takes nothing, and says nothing, never will
    bytes += n;
    size -= static_cast<std::size_t>(n);
  }
  return 0;
}

int sync_to_disk(int file) {
  return uninterrupted([&] { return ::fsync(file); }) == 0 ? 0 : errno;
}

}  // namespace weft
