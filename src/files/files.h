// SPDX-License-Identifier: MIT
// Files that appear whole or not at all, and files that are read whole.
#pragma once

#include "src/files/descriptor.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

namespace weft {
std::string host_name();  // of this machine; "?" where the system does not say

// The text of an errno, with what to do: "No space left on device; free some space there ...".
std::string disk_error(int error);

// Both return 0 or an errno. After an error the content of the file is undefined.
int write_all(int file, const char* bytes, std::size_t size);
int sync_to_disk(int file);

// Whether a NewFile may be a device or a pipe. Formats that are read from front to back may.
enum class Devices : uint8_t { refused, written };

// Throws Error for a name under which no file can appear: empty, too long, that of a folder.
void check_output(const std::string& path, Devices = Devices::refused);

// A file that has no name until commit() syncs it and names it `path`; that replaces an earlier
// file. Of a symbolic link the target is replaced. Without commit(), or when a write fails, nothing
// is left. A device or pipe gets the bytes at once. Throws Error, with what to do.
class NewFile {
 public:
  explicit NewFile(const std::string& path, Devices = Devices::refused);
  NewFile& operator=(NewFile&&) = delete;  // nor copied
  ~NewFile();
  void write(const char* bytes, std::size_t size);
  void commit();

 private:
  void check(int error) const;  // an errno; 0: fine
  void open_unnamed();
  bool try_names(const std::function<bool()>& takes);

  // target_: path_ behind links; temporary_: "" while it has no name
  std::string path_, target_, temporary_;
  bool is_device_ = false;
  Descriptor file_;
};

// Writes to memory with `write`, then to a NewFile. An exception of `write` leaves no file.
void write_whole_file(const std::string& path, const std::function<void(std::ostream&)>& write);
// Makes a folder and those above it. Throws Error, with its name, when that fails.
void make_folder(const std::string& path);
// Copies the file `from` to a NewFile.
void copy_whole_file(const std::string& from, const std::string& path);

// The bytes of a regular file, or of a pipe that a shell gives: /dev/stdin, or <(command). Error
// for other devices, pipes and folders, and for more than `most` bytes (of a pipe 2^30).
std::vector<char> read_input(const std::string& path, int64_t most);

inline std::string read_text(const std::string& path, int64_t most) {
  const std::vector<char> bytes = read_input(path, most);
  return {bytes.begin(), bytes.end()};
}

// Syncs the folder of `path`, so that new names are on the disk. Some network disks cannot do that.
void sync_names_beside(const std::string& path);
}  // namespace weft
