// SPDX-License-Identifier: MIT
// Tokens of an audio model as a sound file.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace weft {

// Mu-law codes (data/formats/mu_law.h) as a WAV file: mono, 16-bit PCM. Error for a token outside 0 to 255,
// an absurd rate, more than 2^31 - 1 bytes; the file appears whole or not at all.
void write_wav(const std::string& path, std::span<const std::int32_t> tokens, std::int64_t rate);

}  // namespace weft
