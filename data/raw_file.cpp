// SPDX-License-Identifier: MIT
// Whole files of raw data.
#include "data/raw_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "kernels/view.h"

namespace weft {

std::vector<char> read_raw_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) fail(str(path, ": is a folder, expected a file"));
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(str(path, ": cannot be opened: ", std::strerror(errno)));
  std::vector<char> bytes;
  std::vector<char> piece(std::size_t{1} << 20);
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())), in.gcount() > 0)
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + in.gcount());
  if (in.bad()) fail(str(path, ": cannot be read: ", std::strerror(errno)));
  if (bytes.empty()) fail(str(path, ": is empty"));
  return bytes;
}

std::vector<std::uint16_t> byte_tokens(const std::vector<char>& bytes) {
  std::vector<std::uint16_t> tokens(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) tokens[i] = static_cast<unsigned char>(bytes[i]);
  return tokens;
}

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

}  // namespace weft
