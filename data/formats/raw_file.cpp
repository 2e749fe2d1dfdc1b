// SPDX-License-Identifier: MIT
#include "data/formats/raw_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "kernels/view.h"

namespace weft {
namespace {

std::ifstream opened(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail(str(path, ": is a folder, expected a file"));
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(str(path, ": cannot be opened: ", std::strerror(errno)));
  return in;
}

}  // namespace

std::vector<char> read_raw_file(const std::string& path) {
  std::ifstream in = opened(path);
  std::error_code error;
  std::vector<char> bytes;
  if (const auto size = std::filesystem::file_size(path, error); !error) bytes.reserve(size);
  std::vector<char> piece(std::size_t{1} << 20);
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())), in.gcount() > 0)
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + in.gcount());
  if (in.bad()) fail(str(path, ": cannot be read: ", std::strerror(errno)));
  if (bytes.empty()) fail(str(path, ": is empty"));
  return bytes;
}

std::string file_beginning(const std::string& path) {
  std::ifstream in = opened(path);
  std::string bytes(512, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(in.gcount());
  return bytes;
}

std::vector<std::uint16_t> byte_tokens(const std::vector<char>& bytes) {
  std::vector<std::uint16_t> tokens(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) tokens[i] = static_cast<unsigned char>(bytes[i]);
  return tokens;
}

void check_not_written(const std::string& file, const std::string& out) {
  std::error_code ignored;
  if (std::filesystem::equivalent(file, out, ignored))
    fail(str(out, ": is both read and written; choose another --out"));
}

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

}  // namespace weft
