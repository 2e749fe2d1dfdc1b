// SPDX-License-Identifier: MIT
#include "data/prepare/raw_file.h"

#include "kernels/view.h"
#include "src/files/files.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <system_error>

namespace weft {
std::vector<char> read_raw_file(const std::string& path, int64_t most) {
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

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

namespace {
using State = std::array<uint32_t, 4>;

// T[i] = floor(2^32 |sin(i + 1)|), section 3.4.
const std::array<uint32_t, 64>& sines() {
  static const auto table = [] {
    std::array<uint32_t, 64> t{};
    for (std::size_t i = 0; i < 64; ++i)
      t[i] = static_cast<uint32_t>(
          std::floor(0x1p32 * std::fabs(std::sin(static_cast<double>(i + 1)))));
    return t;
  }();
  return table;
}

void add_block(State& state, const char* bytes) {
  static constexpr int kShift[4][4] = {
      {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
  uint32_t x[16];
  for (int k = 0; k < 16; ++k) {
    x[k] = 0;
    for (int b = 3; b >= 0; --b) x[k] = x[k] << 8 | static_cast<unsigned char>(bytes[4 * k + b]);
  }
  auto [a, b, c, d] = state;
  for (int i = 0; i < 64; ++i) {
    const int round = i / 16;
    const uint32_t f = round == 0   ? (b & c) | (~b & d)
                       : round == 1 ? (b & d) | (c & ~d)
                       : round == 2 ? b ^ c ^ d
                                    : c ^ (b | ~d);
    const int k = round == 0   ? i
                  : round == 1 ? (5 * i + 1) % 16
                  : round == 2 ? (3 * i + 5) % 16
                               : 7 * i % 16;
    const uint32_t sum = a + f + x[k] + sines()[i];
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, kShift[round][i % 4]);
  }
  state = {state[0] + a, state[1] + b, state[2] + c, state[3] + d};
}
}  // namespace

std::string md5(std::span<const char> bytes) {
  State state = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u};
  const std::size_t whole = bytes.size() / 64 * 64;
  for (std::size_t at = 0; at < whole; at += 64) add_block(state, bytes.data() + at);
  // The rest, a 1 bit, zeros, and the length in bits: one or two blocks.
  char tail[128] = {};
  const std::size_t rest = bytes.size() - whole, length = rest < 56 ? 64 : 128;
  if (rest > 0) std::memcpy(tail, bytes.data() + whole, rest);
  tail[rest] = static_cast<char>(0x80);
  for (std::size_t i = 0; i < 8; ++i)
    tail[length - 8 + i] = static_cast<char>(uint64_t{bytes.size()} * 8 >> 8 * i);
  for (std::size_t at = 0; at < length; at += 64) add_block(state, tail + at);

  std::string digits;
  for (const uint32_t word : state)
    for (int i = 0; i < 8; ++i)
      digits += "0123456789abcdef"[word >> (8 * (i / 2) + 4 * (1 - i % 2)) & 15];
  return digits;
}

DownloadFolder::DownloadFolder(const std::string& path)
    : path_(path) {
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
