// SPDX-License-Identifier: MIT
// Parts of a file that are read when they are asked for, and checks of a file that run once.
#pragma once

#include "src/files/descriptor.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace weft {
// Reads bytes at .. at + size - 1 of an open file. Returns 0, an errno, or -1 where the file ends
// before them.
int read_at(int file, int64_t at, std::size_t size, void* to);

// An array in a file that stays open. Its values are read when they are asked for.
struct StoredBytes {
  std::string name, path;  // of array and file, for errors
  std::shared_ptr<const Descriptor> file;
  int64_t offset = 0;                         // of the values in it
  std::shared_ptr<const std::string> values;  // of compressed ones, in memory: then these are read

  // Bytes first .. first + size - 1. Throws Error when the file has shrunk or cannot be read.
  void read(int64_t first, std::size_t size, void* to) const;
  // Announces a read, so that the system brings the bytes to memory meanwhile.
  void expect(int64_t first, int64_t size) const;
};

// Calls `check`, which reads much of a file, unless it has passed before for a file of this
// identity, size and time. The process remembers files of at least 1 MiB; a note in the user's
// cache folder remembers those of at least 256 MiB.
void check_once(int file, const std::string& what, const std::function<void()>& check);
}  // namespace weft
