// SPDX-License-Identifier: MIT
#include "data/formats/download.h"

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "kernels/view.h"

namespace weft {

DownloadFolder::DownloadFolder(const std::string& path) : path_(path) {
  std::error_code error;
  const bool made = std::filesystem::create_directory(path, error);
  if (error) fail(path, ": cannot be made: ", error.message());
  if (!made) fail(path, ": is there already, from a download that was broken off? Remove it");
}

DownloadFolder::~DownloadFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

bool run_command(const std::string& command) { return std::system(command.c_str()) == 0; }

bool is_installed(const std::string& program) {
  return run_command("command -v " + program + " >/dev/null 2>&1");
}

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

void download_file(const std::string& url, const std::string& path, const std::string& size,
                   const std::string& way_out) {
  const std::string loader = is_installed("curl")   ? "curl -fsL -o "
                             : is_installed("wget") ? "wget -q -O "
                                                    : "";
  if (loader.empty()) fail("neither curl nor wget is installed" + way_out);
  std::clog << "downloading " << url << " (" << size << ")" << std::endl;
  if (!run_command(loader + shell_quoted(path) + " " + shell_quoted(url)))
    fail(url, " could not be downloaded (no network?)", way_out);
}

}  // namespace weft
