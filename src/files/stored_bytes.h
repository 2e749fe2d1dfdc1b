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
// Bytes at .. at + size - 1 of an open file; 0, the errno, or -1 when the file ends before them.
int read_at(int file, int64_t at, std::size_t size, void* to);

// The values of an array in a file that stays open, read when they are asked for.
struct StoredBytes {
  std::string name, path;  // of array and file, for errors
  std::shared_ptr<const Descriptor> file;
  int64_t offset = 0;                         // of the values in it
  std::shared_ptr<const std::string> values;  // of compressed ones, in memory: then these are read

  // Bytes first .. first + size - 1. Throws Error when the file has shrunk or cannot be read.
  void read(int64_t first, std::size_t size, void* to) const;
  // These will be read soon: the system brings them to memory meanwhile.
  void expect(int64_t first, int64_t size) const;
};

// Calls `check`, which reads much of a file, unless it has passed for this file of this size and
// time before: the process remembers that of files of 1 MiB on, a note in the user's cache folder
// of those of 256 MiB on.
void check_once(int file, const std::string& what, const std::function<void()>& check);
}  // namespace weft
