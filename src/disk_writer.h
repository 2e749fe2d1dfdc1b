// SPDX-License-Identifier: MIT
// DiskWriter: bytes that go to the disk a piece at a time, each a sign of progress (src/heartbeat.h). Left to
// itself, the system would keep gigabytes in memory, and the last fsync() would say nothing until all of them
// were written.
#pragma once

#include <cstddef>

#include "src/heartbeat.h"

namespace weft {

class DiskWriter {
 public:
  explicit DiskWriter(int fd) : fd_(fd) {}  // a file open for writing, which stays the caller's
  // Both return 0, or the errno of what went wrong. After finish() all that was written is on the disk.
  int write(const char* bytes, std::size_t size);
  int finish();

 private:
  int flush();

  int fd_;
  std::size_t unflushed_ = 0, flush_at_ = kProgressBytes;
};

}  // namespace weft
