// SPDX-License-Identifier: MIT
#include "data/formats/raw_file.h"

#include <filesystem>
#include <fstream>

#include "kernels/view.h"
#include "src/files/files.h"

namespace weft {

std::vector<char> read_raw_file(const std::string& path, std::int64_t most) {
  std::vector<char> bytes = read_input(path, most);
  if (bytes.empty()) fail(path, ": is empty");
  return bytes;
}

std::string file_beginning(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail(path, ": is a folder, expected a file");
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    fail(path, ": is a device or pipe, expected a file");
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(path, ": cannot be opened: ", std::strerror(errno));
  std::string bytes(512, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(in.gcount());
  return bytes;
}

void check_not_written(const std::string& file, const std::string& out) {
  std::error_code ignored;
  if (std::filesystem::equivalent(file, out, ignored))
    fail(out, ": is both read and written; choose another --out");
}

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

}  // namespace weft
