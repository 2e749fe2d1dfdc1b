// SPDX-License-Identifier: MIT
// Pieces, and how often the disk is waited for.
#include "src/disk_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace weft {
namespace {

// A flush costs a fast disk some milliseconds, whatever it writes, and must never keep a slow one busy for
// long: it is of a piece at first, of twice as much after one that took less than kShortFlush, and of half as
// much after one that took longer than kLongFlush.
constexpr std::size_t kMostUnflushed = 16 * kProgressBytes;
constexpr std::chrono::milliseconds kShortFlush(1000), kLongFlush(4000);

}  // namespace

int DiskWriter::write(const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(fd_, bytes, std::min({size, kProgressBytes, flush_at_ - unflushed_}));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    note_progress();
    bytes += n;
    size -= static_cast<std::size_t>(n);
    unflushed_ += static_cast<std::size_t>(n);
    if (unflushed_ < flush_at_) continue;
    if (const int error = flush(); error != 0) return error;
  }
  return 0;
}

int DiskWriter::flush() {
  const auto began = std::chrono::steady_clock::now();
  if (::fdatasync(fd_) != 0) return errno;
  note_progress();
  const auto took = std::chrono::steady_clock::now() - began;
  unflushed_ = 0;
  if (took < kShortFlush) flush_at_ = std::min(2 * flush_at_, kMostUnflushed);
  if (took > kLongFlush) flush_at_ = std::max(flush_at_ / 2, kProgressBytes);
  return 0;
}

int DiskWriter::finish() {
  if (::fsync(fd_) != 0) return errno;
  note_progress();
  return 0;
}

}  // namespace weft
