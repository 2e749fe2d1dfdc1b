// SPDX-License-Identifier: MIT
// Whole files of raw data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

// The bytes of a file; Error when it is missing, no file, or empty.
std::vector<char> read_raw_file(const std::string& path);

// The first bytes of a file, at most 512: enough to see what it is.
std::string file_beginning(const std::string& path);

// A token for each byte.
std::vector<std::uint16_t> byte_tokens(const std::vector<char>& bytes);

// Error when a file that is read is the one to write.
void check_not_written(const std::string& file, const std::string& out);

std::string file_name(const std::string& path);  // without its folders

}  // namespace weft
