// SPDX-License-Identifier: MIT
// What libarchive only warns of (a wrong checksum, a shortened member) is an Error.
#include "data/formats/archive.h"

#include "data/prepare/raw_file.h"
#include "kernels/view.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#ifdef WEFT_LIBARCHIVE
#include <archive.h>
#include <archive_entry.h>
#endif

namespace weft {
namespace {
constexpr std::size_t kTarMagicAt = 257, kTarBlock = 512;

bool is_tar(std::string_view beginning) {
  return beginning.size() >= kTarMagicAt + 5 && beginning.substr(kTarMagicAt, 5) == "ustar";
}

#ifdef WEFT_LIBARCHIVE

// A tar ends in two blocks of zeros; without them, whole members may be missing.
void check_end_of_tar(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string end(2 * kTarBlock, '\1');
  in.seekg(-static_cast<std::streamoff>(end.size()), std::ios::end);
  in.read(end.data(), static_cast<std::streamsize>(end.size()));
  if (!in || end.find_first_not_of('\0') != std::string::npos)
    fail(path, ": the tar archive is truncated: its end mark is missing");
}

class Reader {
 public:
  Reader(const std::string& path, const ArchiveLimits& limits)
      : path_(path),
        limits_(limits),
        archive_(archive_read_new(), archive_read_free),
        piece_(1 << 18) {
    WEFT_CHECK(archive_, "no memory for an archive reader");
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
    const int64_t most = limits_.small + 100 * size;
    limits_.member = std::min(limits_.member, most);
    limits_.total = std::min(limits_.total, most);
    // A zip is read by the list at its end: without it, the archive is truncated.
    archive_read_support_format_zip_seekable(archive_.get());
    archive_read_support_format_tar(archive_.get());
    archive_read_support_filter_gzip(archive_.get());
    if (archive_read_open_filename(archive_.get(), path.c_str(), piece_.size()) != ARCHIVE_OK)
      damaged();
  }

  // Moves to the next file and skips other entries; false at the end.
  bool next(std::string& name) {
    for (;;) {
      const int result = archive_read_next_header(archive_.get(), &entry_);
      if (result == ARCHIVE_EOF) return false;
      // A warning here is about a name in another alphabet.
      if (result != ARCHIVE_OK && result != ARCHIVE_WARN) damaged();
      if (++count_ > limits_.count) fail(path_, ": has more than ", limits_.count, " members");
      if (archive_entry_filetype(entry_) != AE_IFREG || archive_entry_hardlink(entry_)) continue;
      const char* text = archive_entry_pathname(entry_);
      if (!text) text = archive_entry_pathname_utf8(entry_);
      if (!text) fail(path_, ": member ", count_, " has a name that cannot be read");
      name = text;
      return true;
    }
  }

  std::string bytes(const std::string& name) {
    std::string all;
    for (;;) {
      const la_ssize_t got = archive_read_data(archive_.get(), piece_.data(), piece_.size());
      if (got == 0) break;
      if (got < 0) damaged(name);
      total_ += got;
      const auto size = std::ssize(all) + got;
      if (size > limits_.member || total_ > limits_.total)
        fail(path_, ": ", name, " is too large: more than ",
             size > limits_.member ? str(limits_.member, " bytes")
                                   : str(limits_.total, " bytes in all"));
      all.append(piece_.data(), got);
    }
    if (archive_entry_size_is_set(entry_) &&
        archive_entry_size(entry_) != static_cast<la_int64_t>(all.size()))
      fail(path_, ": ", name, " has ", all.size(), " bytes, the archive promises ",
           archive_entry_size(entry_));
    return all;
  }

 private:
  [[noreturn]] void damaged(const std::string& name = "") const {
    const char* reason = archive_error_string(archive_.get());
    fail(path_, ": ", name.empty() ? "the archive" : name,
         " cannot be read: ", reason ? reason : "damaged or truncated");
  }

  const std::string& path_;
  ArchiveLimits limits_;
  std::unique_ptr<archive, int (*)(archive*)> archive_;
  std::vector<char> piece_;
  archive_entry* entry_ = nullptr;
  int64_t count_ = 0, total_ = 0;
};

#endif
}  // namespace

bool is_archive(std::string_view beginning) {
  using namespace std::string_view_literals;
  return beginning.starts_with("PK\3\4"sv) || beginning.starts_with("PK\5\6"sv) ||
         beginning.starts_with("\x1f\x8b"sv) || is_tar(beginning);
}

#ifdef WEFT_LIBARCHIVE

bool has_archives() { return true; }

void for_each_member(const std::string& path,
                     const std::function<bool(const std::string& name)>& wanted,
                     const std::function<void(const std::string& name, std::string bytes)>& use,
                     const ArchiveLimits& limits) {
  const std::string beginning = file_beginning(path);
  if (!is_archive(beginning)) fail(path, ": is no archive; expected zip (npz), tar or tar.gz");
  if (is_tar(beginning)) check_end_of_tar(path);
  Reader reader(path, limits);
  std::string name;
  while (reader.next(name))
    if (wanted(name)) use(name, reader.bytes(name));
}

#else

bool has_archives() { return false; }

void for_each_member(const std::string& path, const std::function<bool(const std::string& name)>&,
                     const std::function<void(const std::string& name, std::string bytes)>&,
                     const ArchiveLimits&) {
  fail(path,
       ": this build reads no archives; install libarchive-dev, configure and build again, or "
       "unpack "
       "the file first");
}

#endif
}  // namespace weft
