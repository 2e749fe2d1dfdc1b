// SPDX-License-Identifier: MIT
// A file in memory, for readers that want a path.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace weft {
// The path of a file with these bytes; the next call replaces them.
inline const std::string& memory_file(const unsigned char* data, std::size_t size) {
  static const int file = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (file < 0 || ftruncate(file, 0) != 0 ||
      pwrite(file, data, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  return path;
}
}  // namespace weft
