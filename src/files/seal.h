// SPDX-License-Identifier: MIT
// The seal of a file: its first 512 bytes hold the length and the hash of all that follows.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

namespace weft {

inline constexpr std::size_t kSealBlock = 512;
inline std::atomic<bool> verify_seals = true;  // false: --no-verify, a seal is believed

// Seals a file in memory, whose first 512 bytes are free.
void write_seal(char* file, std::size_t size);

// Whether the file has a seal; an Error when it does not fit what follows. A process reads a large file once
// for that, although it opens it for each split. A file that shrinks meanwhile is an error, too.
bool check_seal(const std::string& path, int file);

}  // namespace weft
