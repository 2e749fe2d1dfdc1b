// SPDX-License-Identifier: MIT
// Pieces, and how often the disk is waited for.
#include "src/files/disk_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace weft {
namespace {

// A flush costs a fast disk some milliseconds, whatever it writes, and must never keep a slow one busy for
// long: it is of a piece at first, of twice as much after one that took less than kShortFlush, and of half as
// much after one that took longer than kLongFlush. A disk that was fast may be slow from one flush to the
// next, its cache or its credit used up: kMostUnflushed takes one that is down to 1.5 MB a second 45 s.
constexpr std::size_t kMostUnflushed = 4 * kProgressBytes;
constexpr std::chrono::milliseconds kShortFlush(1000), kLongFlush(4000);

}  // namespace

std::string disk_error(int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return std::string(std::strerror(error)) + (full ? "; free some space there or write to another disk" : "");
}

int DiskWriter::write(const char* bytes, std::size_t size) {
  while (size > 0) {
    const std::size_t piece = std::min({size, kProgressBytes, flush_at_ - unflushed_});
    const ssize_t n = uninterrupted([&] { return ::write(fd_, bytes, piece); });
    if (n < 0) return errno;
    if (n == 0) return EIO;  // a file that takes nothing, and says nothing, never will
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
  if (uninterrupted([&] { return ::fdatasync(fd_); }) != 0) return errno;
  note_progress();
  const auto took = std::chrono::steady_clock::now() - began;
  unflushed_ = 0;
  if (took < kShortFlush) flush_at_ = std::min(2 * flush_at_, kMostUnflushed);
  if (took > kLongFlush) flush_at_ = std::max(flush_at_ / 2, kProgressBytes);
  return 0;
}

int DiskWriter::finish() {
  if (uninterrupted([&] { return ::fsync(fd_); }) != 0) return errno;
  note_progress();
  return 0;
}

}  // namespace weft
