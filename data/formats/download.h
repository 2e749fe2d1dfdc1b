// SPDX-License-Identifier: MIT
// Downloads through the machine's own curl or wget, and the shell commands that go with them.
#pragma once

#include <string>

namespace weft {

// A new folder, removed with its content.
class DownloadFolder {
 public:
  explicit DownloadFolder(const std::string& path);
  ~DownloadFolder();
  DownloadFolder(const DownloadFolder&) = delete;
  DownloadFolder& operator=(const DownloadFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

bool run_command(const std::string& command);  // for the shell; true when it succeeds
bool is_installed(const std::string& program);
std::string shell_quoted(const std::string& text);

// Fetches url into the file `path`; `size` and the url are shown first. Error, with `way_out` at its end,
// when there is neither curl nor wget, or no network.
void download_file(const std::string& url, const std::string& path, const std::string& size,
                   const std::string& way_out);

}  // namespace weft
