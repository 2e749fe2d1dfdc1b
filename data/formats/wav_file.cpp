// SPDX-License-Identifier: MIT
// WAV files: a RIFF header of 44 bytes, then the samples.
#include "data/formats/wav_file.h"

#include <cmath>
#include <limits>
#include <ostream>

#include "data/formats/mu_law.h"
#include "kernels/view.h"
#include "src/files/files.h"

namespace weft {
namespace {

void append(std::string& bytes, std::int64_t value, int size) {  // little-endian
  for (int k = 0; k < size; ++k) bytes += static_cast<char>(value >> 8 * k & 0xff);
}

}  // namespace

void write_wav(const std::string& path, std::span<const std::int32_t> tokens, std::int64_t rate) {
  constexpr std::int64_t kItem = 2, kHeader = 44, kPcm = 1, kMono = 1;
  const auto size = static_cast<std::int64_t>(tokens.size()) * kItem;
  if (rate < 1 || rate > 768000)
    fail(str(path, ": a sound of ", rate, " samples a second cannot be written"));
  if (size > std::numeric_limits<std::int32_t>::max() - kHeader)
    fail(str(path, ": ", tokens.size(), " samples are too many for a WAV file"));
  std::string bytes = "RIFF";
  append(bytes, kHeader - 8 + size, 4);
  bytes += "WAVEfmt ";
  append(bytes, 16, 4);  // of the format that follows
  append(bytes, kPcm, 2);
  append(bytes, kMono, 2);
  append(bytes, rate, 4);
  append(bytes, rate * kItem, 4);
  append(bytes, kItem, 2);
  append(bytes, 8 * kItem, 2);
  bytes += "data";
  append(bytes, size, 4);
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= kMuLawLevels)
      fail(str(path, ": token ", token, " is no mu-law code; expected 0 to ", kMuLawLevels - 1));
    append(bytes, std::lround(mu_law_decode(static_cast<std::uint8_t>(token)) * 32767), kItem);
  }
  write_whole_file(path, [&](std::ostream& out) { out << bytes; });
}

}  // namespace weft
