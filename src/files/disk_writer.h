// SPDX-License-Identifier: MIT
// DiskWriter: bytes that go to the disk a piece at a time, each a sign of progress (src/ranks/heartbeat.h).
// Left to itself, the system would keep gigabytes in memory, and the last fsync() would say nothing until all
// of them were written.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string>

#include "src/ranks/heartbeat.h"

namespace weft {

// What a system call returns that no signal interrupted: file systems of programs, as of cloud storage, let
// signals end any call, those included that ask a process to save and leave.
template <class Call>
auto uninterrupted(Call call) {
  for (;;)
    if (const auto result = call(); result >= 0 || errno != EINTR) return result;
}

// "No space left on device; free some space there or write to another disk", of an errno.
std::string disk_error(int error);

class DiskWriter {
 public:
  explicit DiskWriter(int fd) : fd_(fd) {}  // a file open for writing, which stays the caller's
  // Both return 0, or the errno of what went wrong, after which the file is good for nothing. After finish()
  // all that was written is on the disk.
  int write(const char* bytes, std::size_t size);
  int finish();

 private:
  int flush();

  int fd_;
  std::size_t unflushed_ = 0, flush_at_ = kProgressBytes;
};

}  // namespace weft
