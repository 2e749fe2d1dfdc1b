// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weft {
inline constexpr int64_t kMostRawBytes = int64_t{1} << 36;  // ImageNet 64 x 64 has 2^34

// The bytes of a file or pipe (read_input in src/files/files.h); Error also when there are none.
std::vector<char> read_raw_file(const std::string& path, int64_t most = kMostRawBytes);

// The first bytes of a file, at most 512: enough to see what it is.
std::string file_beginning(const std::string& path);

std::string file_name(const std::string& path);  // without its folders

// MD5 (RFC 1321) in 32 hexadecimal digits: recognises well-known data sets. Not for secrets.
std::string md5(std::span<const char> bytes);

// ---- downloads, through the machine's own curl or wget, and the shell commands that go with them

// A new folder, removed with its content.
class DownloadFolder {
 public:
  explicit DownloadFolder(const std::string& path);
  ~DownloadFolder();
  DownloadFolder& operator=(DownloadFolder&&) = delete;  // nor copied

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

bool run_command(const std::string& command);  // for the shell; true when it succeeds
bool is_installed(const std::string& program);
std::string shell_quoted(const std::string& text);

// Fetches url into the file `path`; `size` and the url are shown first. Error, with `way_out` at
// its end, when there is neither curl nor wget, or no network.
void download_file(const std::string& url, const std::string& path, const std::string& size,
                   const std::string& way_out);
}  // namespace weft
