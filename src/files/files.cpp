// SPDX-License-Identifier: MIT
// A file is written under a temporary name and renamed.
#include "src/files/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "kernels/view.h"
#include "src/files/disk_writer.h"

namespace weft {
namespace {

// Returns 0, or the errno of what went wrong.
int copy_pieces(int from, int to) {
  std::vector<char> piece(std::size_t{1} << 20);
  for (;;) {
    const ssize_t n = uninterrupted([&] { return read(from, piece.data(), piece.size()); });
    if (n < 0) return errno;
    if (n == 0) return sync_to_disk(to);
    if (const int error = write_all(to, piece.data(), static_cast<std::size_t>(n)); error != 0) return error;
  }
}

int open_file(const std::string& path, int how) {
  return uninterrupted([&] { return open(path.c_str(), how | O_CLOEXEC, 0666); });
}

int copy_file(const std::string& from, const std::string& path) {
  const int in = open_file(from, O_RDONLY);
  if (in < 0) return errno;
  const int out = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
  int error = out < 0 ? errno : copy_pieces(in, out);
  if (out >= 0 && close(out) != 0 && errno != EINTR && error == 0) error = errno;
  close(in);
  return error;
}

// What is in a file goes to the disk.
int sync_file(const std::string& path) {
  const int file = open_file(path, O_RDONLY);
  if (file < 0) return errno;
  const int error = sync_to_disk(file);
  close(file);
  return error;
}

}  // namespace

void write_whole_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  const std::string temporary = path + ".tmp";
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  if (!out)
    fail(str("cannot write '", path, "': ", std::strerror(errno),
             "; does its folder exist, may you write there?"));
  std::error_code ignored;
  try {
    write(out);
    out.close();
    if (!out) fail(str("could not write '", path, "': ", std::strerror(errno), "; is the disk full?"));
    if (const int error = sync_file(temporary); error != 0)
      fail(str("could not write '", path, "': ", disk_error(error)));
    std::filesystem::rename(temporary, path);
  } catch (const std::filesystem::filesystem_error& error) {
    std::filesystem::remove(temporary, ignored);
    fail(str("could not write '", path, "': ", error.code().message()));
  } catch (...) {
    out.close();
    std::filesystem::remove(temporary, ignored);
    throw;
  }
}

void copy_whole_file(const std::string& from, const std::string& path) {
  const std::string temporary = path + ".tmp";
  int error = copy_file(from, temporary);
  if (error == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return sync_names_beside(path);
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  fail(str("could not write '", path, "', a copy of '", from, "': ", disk_error(error)));
}

std::string parent_folder(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

void sync_names_beside(const std::string& path) {
  const int folder = open_file(parent_folder(path), O_RDONLY | O_DIRECTORY);
  if (folder < 0) return;
  static_cast<void>(sync_to_disk(folder));
  close(folder);
}

}  // namespace weft
