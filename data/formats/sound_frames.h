// SPDX-License-Identifier: MIT
// Bytes of a file of sound, and frames of the formats that have them: whether the sound that a file
// holds is the sound that it states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace weft {
uint64_t number_in(std::string_view bytes, bool big_endian);

struct SoundFileBytes {
  explicit SoundFileBytes(const std::string& file)
      : path(file),
        in(file, std::ios::binary | std::ios::ate),
        size(static_cast<int64_t>(in.tellg())) {}

  // The bytes from `at` on; fewer where the file ends.
  std::string read(int64_t at, std::size_t count) {
    std::string bytes(count, '\0');
    in.clear();
    in.seekg(at);
    in.read(bytes.data(), static_cast<std::streamsize>(count));
    bytes.resize(static_cast<std::size_t>(in.gcount()));
    return bytes;
  }

  std::string path;
  std::ifstream in;
  int64_t size;
};

// Errors: the last frame does not end with the file, or with the sample numbered `stated`. `first`:
// where "fLaC" stands (RFC 9639).
void check_flac_frames(SoundFileBytes& file, int64_t first, uint64_t stated);

// Errors: something that is neither a frame nor a tag, or other than `stated` frames behind the
// first, which states them (ISO/IEC 11172-3, 13818-3).
void check_mp3_frames(SoundFileBytes& file, int64_t first, uint64_t stated);
}  // namespace weft
