// SPDX-License-Identifier: MIT
// Small archives built by hand: zips and gzips without compression, tars.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace weft {
inline std::string little_endian(uint64_t value, int bytes) {
  std::string out;
  for (int k = 0; k < bytes; ++k) out += static_cast<char>(value >> 8 * k & 0xff);
  return out;
}

inline uint32_t crc32_of(const std::string& bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int k = 0; k < 8; ++k) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

inline std::string zip_of(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string zip, list;
  for (const auto& [name, bytes] : members) {
    // version 2.0, flags, stored, time, date, checksum, sizes, length of the name, no extra field
    const std::string common = little_endian(20, 2) + std::string(4, '\0') + std::string(4, '\0') +
                               little_endian(crc32_of(bytes), 4) + little_endian(bytes.size(), 4) +
                               little_endian(bytes.size(), 4) + little_endian(name.size(), 2) +
                               little_endian(0, 2);
    list += "PK\1\2" + little_endian(20, 2) + common + std::string(10, '\0') +
            little_endian(zip.size(), 4) + name;
    zip += "PK\3\4" + common + name + bytes;
  }
  return zip + list + "PK\5\6" + std::string(4, '\0') + little_endian(members.size(), 2) +
         little_endian(members.size(), 2) + little_endian(list.size(), 4) +
         little_endian(zip.size(), 4) + little_endian(0, 2);
}

// type: 0 a file, 1 a hard link, 2 a symbolic link, 5 a folder.
inline std::string tar_member(const std::string& name, const std::string& bytes, char type = '0',
                              const std::string& link = "") {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  const auto octal = [&](std::size_t at, std::size_t digits, std::size_t value) {
    for (std::size_t k = 0; k < digits; ++k, value >>= 3)
      header[at + digits - 1 - k] = static_cast<char>('0' + (value & 7));
  };
  put(0, name);
  octal(100, 7, 0644);
  octal(108, 7, 0);
  octal(116, 7, 0);
  octal(124, 11, bytes.size());
  octal(136, 11, 0);
  put(148, std::string(8, ' '));
  header[156] = type;
  put(157, link);
  put(257, std::string("ustar\00000", 8));
  std::size_t sum = 0;
  for (const char c : header) sum += static_cast<uint8_t>(c);
  octal(148, 6, sum);
  header[154] = '\0';
  return header + bytes + std::string((512 - bytes.size() % 512) % 512, '\0');
}

inline std::string tar_of(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string tar;
  for (const auto& [name, bytes] : members) tar += tar_member(name, bytes);
  return tar + std::string(1024, '\0');
}

// A gzip file whose blocks are stored.
inline std::string stored_gzip(const std::string& bytes) {
  std::string gzip("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
  for (std::size_t at = 0; at <= bytes.size(); at += 65535) {
    const std::string block = bytes.substr(at, 65535);
    gzip += static_cast<char>(at + 65535 > bytes.size());  // the last one
    gzip += little_endian(block.size(), 2) + little_endian(~block.size(), 2) + block;
  }
  return gzip + little_endian(crc32_of(bytes), 4) + little_endian(bytes.size(), 4);
}
}  // namespace weft
