// SPDX-License-Identifier: MIT
// Whole files of raw data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

// The bytes of a file; Error when it is missing, no file, or empty.
std::vector<char> read_raw_file(const std::string& path);

// A token for each byte.
std::vector<std::uint16_t> byte_tokens(const std::vector<char>& bytes);

std::string file_name(const std::string& path);  // without its folders

}  // namespace weft
