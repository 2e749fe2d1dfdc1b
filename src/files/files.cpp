// SPDX-License-Identifier: MIT
#include "src/files/files.h"

#include "kernels/view.h"
#include "src/files/hash.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace weft {
namespace {
Descriptor open_file(const std::string& path, int how) {
  return Descriptor(uninterrupted([&] { return open(path.c_str(), how | O_CLOEXEC, 0666); }));
}

std::string parent_folder(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// A name as errors show it.
std::string shown(const std::string& path) {
  constexpr std::size_t kMost = 300;
  return path.size() <= kMost ? path : path.substr(0, 60) + "...";
}

// Names of what a process has open: links that lead to files without a name, too.
bool is_open_file(const std::string& path) {
  return path.starts_with("/proc/") || path.starts_with("/dev/fd/") || path.starts_with("/dev/std");
}

// Why nothing can be made under this name, where the system says ENOENT.
std::string why_none(const std::string& path) {
  const std::string parent = parent_folder(path);
  std::error_code none;
  return std::filesystem::is_directory(parent, none)
             ? parent + " takes no new names; choose a folder on a disk"
             : "there is no folder " + parent;
}

struct Output {
  std::string target;  // the file to replace, behind all links
  bool is_device = false;
};

Output find_output(const std::string& path, Devices devices) {
  if (path.empty()) fail("expected the name of a file to write, got an empty one");

  struct stat info {};

  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (!exists && errno != ENOENT) fail(shown(path), ": cannot be written: ", std::strerror(errno));
  if (exists && S_ISDIR(info.st_mode))
    fail(path, ": is a folder, expected the name of a file to write");
  Output output{path, exists && !S_ISREG(info.st_mode)};
  // A link to nothing passes stat() as a missing file; one that leads in a circle does not.
  std::error_code none;
  for (std::filesystem::path at = path;
       !output.is_device && std::filesystem::is_symlink(at, none);) {
    const std::filesystem::path next = std::filesystem::read_symlink(at, none);
    output.is_device = is_open_file(at.string()) || is_open_file(next.string());
    at = next.is_absolute() ? next : at.parent_path() / next;
    output.target = at.string();
  }
  if (output.is_device && devices == Devices::refused)
    fail(path, ": is a device or pipe, expected the name of a regular file to write");
  return output;
}
}  // namespace

std::string disk_error(int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return std::string(std::strerror(error)) +
         (full ? "; free some space there or write to another disk" : "");
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

void check_output(const std::string& path, Devices devices) { find_output(path, devices); }

NewFile::NewFile(const std::string& path, Devices devices)
    : path_(path) {
  Output output = find_output(path, devices);
  target_ = std::move(output.target);
  is_device_ = output.is_device;
  if (is_device_)
    file_ = open_file(path_, O_WRONLY | O_APPEND | O_NOCTTY);
  else
    open_unnamed();
  if (!file_ && errno == ENOENT) fail(path_, ": cannot be written: ", why_none(target_));
  if (!file_) fail(path_, ": cannot be written: ", std::strerror(errno));
}

// Some file systems give every file a name.
void NewFile::open_unnamed() {
  file_ = open_file(parent_folder(target_), O_WRONLY | O_TMPFILE);
  if (file_ || errno == ENOENT) return;
  try_names([&] { return bool(file_ = open_file(temporary_, O_WRONLY | O_CREAT | O_EXCL)); });
}

// Offers free names beside the target, as temporary_, until `takes` takes one; false with an errno:
// none.
bool NewFile::try_names(const std::function<bool()>& takes) {
  std::random_device random;
  for (int left = 100; left > 0; --left) {
    temporary_ = str(parent_folder(target_), "/.weft-", getpid(), "-", random(), ".tmp");
    if (takes()) return true;
    if (errno != EEXIST) break;
  }
  temporary_.clear();
  return false;
}

NewFile::~NewFile() {
  file_.close();
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void NewFile::check(int error) const {
  if (error == 0) return;
  std::error_code unknown;
  fail(path_, ": could not be written: ", disk_error(error),
       !is_device_ && std::filesystem::exists(path_, unknown) ? " (the earlier file is unchanged)"
                                                              : "");
}

void NewFile::write(const char* bytes, std::size_t size) {
  check(write_all(file_.get(), bytes, size));
}

void NewFile::commit() {
  if (!is_device_) check(sync_to_disk(file_.get()));
  if (!is_device_ && temporary_.empty()) {
    const std::string unnamed = str("/proc/self/fd/", file_.get());
    const bool named = try_names([&] {
      return linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW) ==
             0;
    });
    check(named ? 0 : errno);
  }
  check(file_.close() != 0 && errno != EINTR ? errno : 0);
  if (is_device_) return;
  check(std::rename(temporary_.c_str(), target_.c_str()) != 0 ? errno : 0);
  temporary_.clear();
  sync_names_beside(target_);
}

void write_whole_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  NewFile file(path, Devices::written);
  std::ostringstream out;
  out.exceptions(std::ios::badbit);  // also when memory is out
  write(out);
  const std::string_view text = out.view();
  file.write(text.data(), text.size());
  file.commit();
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return;
  // of the folders to make, the first that cannot be made
  std::filesystem::path at = std::filesystem::absolute(path).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();
  while (at.has_relative_path() && !std::filesystem::exists(at.parent_path()))
    at = at.parent_path();
  fail("cannot make the folder ", path, ": ",
       error == std::errc::no_such_file_or_directory ? why_none(at.string()) : error.message());
}

void copy_whole_file(const std::string& from, const std::string& path) {
  const Descriptor in = open_file(from, O_RDONLY);
  if (!in) fail(from, ": cannot be opened: ", std::strerror(errno));
  NewFile file(path);
  std::vector<char> piece(std::size_t{1} << 20);
  for (;;) {
    const ssize_t n = uninterrupted([&] { return read(in.get(), piece.data(), piece.size()); });
    if (n < 0) fail(from, ": cannot be read: ", std::strerror(errno));
    if (n == 0) return file.commit();
    file.write(piece.data(), static_cast<std::size_t>(n));
  }
}

std::vector<char> read_input(const std::string& path, int64_t most) {
  struct stat info {};

  if (::stat(path.c_str(), &info) != 0)
    fail(shown(path), ": cannot be opened: ", std::strerror(errno));
  if (S_ISDIR(info.st_mode)) fail(path, ": is a folder, expected a file");
  if (!S_ISREG(info.st_mode) && !(S_ISFIFO(info.st_mode) && is_open_file(path)))
    fail(path,
         ": is a device or named pipe, expected a file (or <(command), or /dev/stdin with a pipe)");
  const Descriptor in = open_file(path, O_RDONLY | O_NOCTTY);
  if (!in) fail(path, ": cannot be opened: ", std::strerror(errno));
  constexpr int64_t kMostOfPipe = int64_t{1} << 30;
  if (S_ISFIFO(info.st_mode)) most = std::min(most, kMostOfPipe);
  if (info.st_size > most)
    fail(path, ": has ", info.st_size, " bytes; at most ", most, " are read");
  std::vector<char> bytes, piece(std::size_t{1} << 20);
  bytes.reserve(info.st_size);
  for (;;) {
    const ssize_t n = uninterrupted([&] { return read(in.get(), piece.data(), piece.size()); });
    if (n < 0) fail(path, ": cannot be read: ", std::strerror(errno));
    if (n == 0) return bytes;
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + n);
    if (std::ssize(bytes) > most)
      fail(path, ": has more than ", most, " bytes, which is all that is read");
  }
}

void sync_names_beside(const std::string& path) {
  if (const Descriptor folder = open_file(parent_folder(path), O_RDONLY | O_DIRECTORY))
    static_cast<void>(sync_to_disk(folder.get()));
}

std::string host_name() {
  char name[256] = "?";
  gethostname(name, sizeof name - 1);
  return name;
}
}  // namespace weft
