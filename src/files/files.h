// SPDX-License-Identifier: MIT
// Files that appear whole or not at all.
#pragma once

#include <cerrno>
#include <cstddef>
#include <functional>
#include <iosfwd>
#include <string>

namespace weft {

// The result of a system call, repeated while signals interrupt it: some file systems let them end any call.
template <class Call>
auto uninterrupted(Call call) {
  for (;;)
    if (const auto result = call(); result >= 0 || errno != EINTR) return result;
}

// "No space left on device; free some space there or write to another disk", of an errno.
std::string disk_error(int error);

// Both return 0, or the errno of what went wrong, after which the file is good for nothing.
int write_all(int file, const char* bytes, std::size_t size);
int sync_to_disk(int file);

// Written as "<path>.tmp"; commit() syncs it and renames it over `path`. Without commit(), and when a write
// fails, the temporary file is removed and an earlier `path` stays. Throws Error, with what to do.
class NewFile {
 public:
  explicit NewFile(const std::string& path);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();
  void write(const char* bytes, std::size_t size);
  void commit();

 private:
  void check(int error) const;  // an errno; 0: fine

  std::string path_, temporary_;
  int fd_ = -1;  // of the temporary file; -1 after commit()
};

// A NewFile with what `write` puts out, held in memory until then; an exception of `write` leaves no file.
void write_whole_file(const std::string& path, const std::function<void(std::ostream&)>& write);
// A NewFile with what is in the file `from`.
void copy_whole_file(const std::string& from, const std::string& path);

// Syncs the folder of `path`, without which a new name is not on the disk. Folders that cannot be synced
// (some network disks) are let pass.
void sync_names_beside(const std::string& path);

}  // namespace weft
