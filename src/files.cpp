// SPDX-License-Identifier: MIT
// A file is written under a temporary name and renamed.
#include "src/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "kernels/view.h"
#include "src/disk_writer.h"

namespace weft {
namespace {

// Returns 0, or the errno of what went wrong.
int copy_pieces(int from, int to) {
  DiskWriter writer(to);
  std::vector<char> piece(kProgressBytes);
  for (;;) {
    const ssize_t n = read(from, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return writer.finish();
    if (const int error = writer.write(piece.data(), static_cast<std::size_t>(n)); error != 0) return error;
  }
}

int copy_file(const std::string& from, const std::string& path) {
  const int in = open(from.c_str(), O_RDONLY | O_CLOEXEC);
  if (in < 0) return errno;
  const int out = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  int error = out < 0 ? errno : copy_pieces(in, out);
  if (out >= 0 && close(out) != 0 && error == 0) error = errno;
  close(in);
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
  if (error == 0) return;
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  fail(str("could not write '", path, "', a copy of '", from, "': ", std::strerror(error)));
}

}  // namespace weft
