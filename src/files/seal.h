// SPDX-License-Identifier: MIT
// The seal of a file: its first 512 bytes hold a magic text, the length and the hash of all that
// follows, and zeros.
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

// Returns whether the file has a seal: half of the magic text or more. Throws Error when a byte of
// the seal differs, or length or hash of what follows, also when the file shrinks meanwhile, and
// when it is cut within the seal. A large file is read only once for that (check_once).
bool check_seal(const std::string& path, int file);
}  // namespace weft
