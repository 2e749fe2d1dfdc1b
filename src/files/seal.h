// SPDX-License-Identifier: MIT
// The seal of a file: its first 512 bytes hold the length and the hash of all that follows.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace weft {
inline constexpr std::size_t kSealBlock = 512;
inline std::atomic<bool> verify_seals = true;  // false: --no-verify, a seal is believed

// Writes to kSealBlock zeros the seal of a file with so many bytes behind it, of this FastHash.
void write_seal(char* block, std::size_t size, uint64_t hash);

// Whether the file has a seal; an Error when it does not fit what follows. A large file is read
// once for that (check_once). A file that shrinks meanwhile is an error, too.
bool check_seal(const std::string& path, int file);
}  // namespace weft
