// SPDX-License-Identifier: MIT
#include "src/files/stored_bytes.h"

#include "kernels/view.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace weft {
int read_at(int file, int64_t at, std::size_t size, void* to) {
  for (auto* bytes = static_cast<char*>(to); size > 0;) {
    const ssize_t n = uninterrupted([&] { return ::pread(file, bytes, size, at); });
    if (n <= 0) return n < 0 ? errno : -1;
    bytes += n, at += n, size -= static_cast<std::size_t>(n);
  }
  return 0;
}

void StoredBytes::read(int64_t first, std::size_t size, void* to) const {
  if (values)
    return static_cast<void>(std::copy_n(values->data() + first, size, static_cast<char*>(to)));
  const int error = read_at(file->get(), offset + first, size, to);
  if (error > 0) fail(path, ": cannot be read: ", std::strerror(error));
  if (error < 0) fail(path, ": is truncated in ", name, "; copy or make it again");
}

void StoredBytes::expect(int64_t first, int64_t size) const {
  if (!values) posix_fadvise(file->get(), offset + first, size, POSIX_FADV_WILLNEED);
}

void check_once(int file, const std::string& what, const std::function<void()>& check) {
  constexpr int64_t kRemembered = 1 << 20, kNoted = 1 << 28;  // bytes
  static std::mutex mutex;
  static std::set<std::string> passed;

  struct stat info {};

  ::fstat(file, &info);
  const std::string version = str(what, "-", info.st_dev, "-", info.st_ino, "-", info.st_size, "-",
                                  info.st_mtim.tv_sec, "-", info.st_mtim.tv_nsec);
  const std::lock_guard lock(mutex);
  if (passed.contains(version)) return;
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  const bool chosen = cache && *cache;
  const std::filesystem::path folder = chosen ? cache : str(home ? home : "", "/.cache"),
                              note = folder / "weft/checked" / version;
  std::error_code none;
  const bool noted = info.st_size >= kNoted && (chosen || home);
  if (!noted || !std::filesystem::exists(note, none)) check();
  if (info.st_size >= kRemembered) passed.insert(version);
  if (!noted) return;
  // without a note it is checked again
  std::filesystem::create_directories(note.parent_path(), none);
  std::ofstream(note) << what;
}
}  // namespace weft
