// SPDX-License-Identifier: MIT
// Files that appear whole or not at all.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {
// The result of a system call, repeated while signals interrupt it: some file systems let them end
// any call.
template <class Call>
auto uninterrupted(Call call) {
  for (;;)
    if (const auto result = call(); result >= 0 || errno != EINTR) return result;
}

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int number = -1)
      : number_(number) {}

  Descriptor(Descriptor&& other) noexcept
      : Descriptor(std::exchange(other.number_, -1)) {}

  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  ~Descriptor() { close(); }

  int get() const { return number_; }

  explicit operator bool() const { return number_ >= 0; }

  int close();  // what the system call returns

 private:
  int number_;
};

std::string host_name();

// "No space left on device; free some space there or write to another disk", of an errno.
std::string disk_error(int error);

// Both return 0, or the errno of what went wrong, after which the file is good for nothing.
int write_all(int file, const char* bytes, std::size_t size);
int sync_to_disk(int file);

// All bytes over a connection; false: it is gone, or its patience over.
bool send_all(int socket, const void* bytes, std::size_t size, int flags = 0);
bool receive_all(int socket, void* bytes, std::size_t size);

// What a NewFile does with a device or pipe: a format that is read from front to back can go there.
enum class Devices : uint8_t { refused, written };

// Throws Error for a name under which no file can appear: empty, too long, that of a folder.
void check_output(const std::string& path, Devices = Devices::refused);

// A file without a name until commit() syncs it and gives it the name `path`, in place of an
// earlier file. A symbolic link stays, and what it leads to is replaced. Without commit(), and when
// a write fails, nothing is left. A device or pipe gets the bytes at once. Throws Error, with what
// to do.
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

// A NewFile with what `write` puts out, held in memory until then; an exception of `write` leaves
// no file.
void write_whole_file(const std::string& path, const std::function<void(std::ostream&)>& write);
// A folder, with those above it. Error, naming it, when it cannot be made.
void make_folder(const std::string& path);
// A NewFile with what is in the file `from`.
void copy_whole_file(const std::string& from, const std::string& path);

// The bytes of a regular file, or of a pipe that a shell gives: /dev/stdin, or <(command). Error
// for other devices, pipes and folders, and for more than `most` bytes (of a pipe 2^30).
std::vector<char> read_input(const std::string& path, int64_t most);

inline std::string read_text(const std::string& path, int64_t most) {
  const std::vector<char> bytes = read_input(path, most);
  return {bytes.begin(), bytes.end()};
}

// Bytes at .. at + size - 1 of an open file; 0, the errno, or -1 when the file ends before them.
int read_at(int file, int64_t at, std::size_t size, void* to);

// The values of an array in a file that stays open, read when they are asked for.
struct StoredBytes {
  std::string name, path;  // of array and file, for errors
  std::shared_ptr<const Descriptor> file;
  int64_t offset = 0;                         // of the values in it
  std::shared_ptr<const std::string> values;  // of compressed ones, in memory: then these are read

  // Bytes first .. first + size - 1. Throws Error when the file has shrunk or cannot be read.
  void read(int64_t first, std::size_t size, void* to) const;
  // These will be read soon: the system brings them to memory meanwhile.
  void expect(int64_t first, int64_t size) const;
};

// Calls `check`, which reads much of a file, unless it has passed for this file of this size and
// time before: the process remembers that of files of 1 MiB on, a note in the user's cache folder
// of those of 256 MiB on.
void check_once(int file, const std::string& what, const std::function<void()>& check);

// Syncs the folder of `path`, so that new names are on the disk, where it can be (not on some
// network disks).
void sync_names_beside(const std::string& path);

// The last words of a process that fails. Writes "error: <what>" at once, with "; " for line ends:
// to the file descriptor WEFT_ERROR_FD, where a launcher reads the lines of its processes,
// otherwise to stderr.
void print_error_line(const std::string& what) noexcept;

// ---- the seal of a file: its first 512 bytes hold the length and the hash of all that follows

inline constexpr std::size_t kSealBlock = 512;
inline std::atomic<bool> verify_seals = true;  // false: --no-verify, a seal is believed

// Writes to kSealBlock zeros the seal of a file with so many bytes behind it, of this FastHash.
void write_seal(char* block, std::size_t size, uint64_t hash);

// Whether the file has a seal; an Error when it does not fit what follows. A large file is read
// once for that (check_once). A file that shrinks meanwhile is an error, too.
bool check_seal(const std::string& path, int file);
}  // namespace weft
