// SPDX-License-Identifier: MIT
// Files that appear whole or not at all.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "src/files/disk_writer.h"

namespace weft {

// Written as "<path>.tmp"; commit() syncs it and renames it over `path`. Without commit(), and when a write
// fails, the temporary file is removed and an earlier `path` stays. Throws Error, with what to do.
class NewFile {
 public:
  explicit NewFile(const std::string& path);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();
  const std::string& path() const { return path_; }
  void write(const char* bytes, std::size_t size);
  void commit();

 private:
  void check(int error) const;  // an errno; 0: fine

  std::string path_, temporary_;
  int fd_ = -1;  // of the temporary file; -1 after commit()
};

// A NewFile with what `write` puts out; an exception of `write` leaves no file.
void write_whole_file(const std::string& path, const std::function<void(std::ostream&)>& write);
// A NewFile with what is in the file `from`.
void copy_whole_file(const std::string& from, const std::string& path);

// A new name is on the disk only when its folder is: waits until that of `path` is there, names that were
// given to other files of it included. Folders that cannot be synced (some network disks) are let pass.
void sync_names_beside(const std::string& path);

}  // namespace weft
