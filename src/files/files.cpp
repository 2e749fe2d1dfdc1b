// SPDX-License-Identifier: MIT
#include "src/files/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/view.h"

namespace weft {
namespace {

int open_file(const std::string& path, int how) {
  return uninterrupted([&] { return open(path.c_str(), how | O_CLOEXEC, 0666); });
}

std::string parent_folder(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

int open_temporary(const std::string& path, const std::string& temporary) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    fail(str(path, ": is a folder, expected the name of a file to write"));
  const int fd = open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
  if (fd < 0 && errno == ENOENT)
    fail(str(path, ": cannot be written: there is no folder ", parent_folder(path)));
  if (fd < 0) fail(str(path, ": cannot be written: ", std::strerror(errno)));
  return fd;
}

}  // namespace

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

NewFile::NewFile(const std::string& path)
    : path_(path), temporary_(path + ".tmp"), fd_(open_temporary(path_, temporary_)) {}

NewFile::~NewFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void NewFile::check(int error) const {
  if (error == 0) return;
  std::error_code unknown;
  fail(str(path_, ": could not be written: ", disk_error(error),
           std::filesystem::exists(path_, unknown) ? " (the earlier file is unchanged)" : ""));
}

void NewFile::write(const char* bytes, std::size_t size) { check(write_all(fd_, bytes, size)); }

void NewFile::commit() {
  check(sync_to_disk(fd_));
  check(close(std::exchange(fd_, -1)) != 0 && errno != EINTR ? errno : 0);
  check(std::rename(temporary_.c_str(), path_.c_str()) != 0 ? errno : 0);
  temporary_.clear();
  sync_names_beside(path_);
}

void write_whole_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  NewFile file(path);
  std::ostringstream out;
  out.exceptions(std::ios::badbit);  // also when memory is out
  write(out);
  const std::string_view text = out.view();
  file.write(text.data(), text.size());
  file.commit();
}

void copy_whole_file(const std::string& from, const std::string& path) {
  const int in = open_file(from, O_RDONLY);
  if (in < 0) fail(str(from, ": cannot be opened: ", std::strerror(errno)));
  const struct Closer {
    int fd;
    ~Closer() { close(fd); }
  } closer{in};
  NewFile file(path);
  std::vector<char> piece(std::size_t{1} << 20);
  for (;;) {
    const ssize_t n = uninterrupted([&] { return read(in, piece.data(), piece.size()); });
    if (n < 0) fail(str(from, ": cannot be read: ", std::strerror(errno)));
    if (n == 0) return file.commit();
    file.write(piece.data(), static_cast<std::size_t>(n));
  }
}

void sync_names_beside(const std::string& path) {
  const int folder = open_file(parent_folder(path), O_RDONLY | O_DIRECTORY);
  if (folder < 0) return;
  static_cast<void>(sync_to_disk(folder));
  close(folder);
}

}  // namespace weft
