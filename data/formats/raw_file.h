// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weft {

inline constexpr std::int64_t kMostRawBytes = std::int64_t{1} << 36;  // ImageNet 64 x 64 has 2^34

// The bytes of a file or pipe (read_input in src/files/files.h); Error also when there are none.
std::vector<char> read_raw_file(const std::string& path, std::int64_t most = kMostRawBytes);

// The first bytes of a file, at most 512: enough to see what it is.
std::string file_beginning(const std::string& path);

// Error when a file that is read is the one to write.
void check_not_written(const std::string& file, const std::string& out);

std::string file_name(const std::string& path);  // without its folders

// MD5 (RFC 1321) in 32 hexadecimal digits: recognises well-known data sets. Not for secrets.
std::string md5(std::span<const char> bytes);

}  // namespace weft
