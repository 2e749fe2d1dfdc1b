// SPDX-License-Identifier: MIT
// The seal of a file: its first 512 bytes hold the length and the hash of all that follows.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace weft {
inline constexpr std::size_t kSealBlock = 512;
inline std::atomic<bool> verify_seals = true;  // false (--no-verify): seals are not compared

// Writes a seal to `block`, kSealBlock zeros: `size` bytes follow, whose FastHash is `hash`.
void write_seal(char* block, std::size_t size, uint64_t hash);

// Returns whether the file has a seal. Throws Error when length or hash of what follows differ,
// also when the file shrinks meanwhile. A large file is read only once for that (check_once).
bool check_seal(const std::string& path, int file);
}  // namespace weft
