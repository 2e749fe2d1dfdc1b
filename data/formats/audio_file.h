// SPDX-License-Identifier: MIT
// Sound files as mu-law codes, read and written. audio_file.cpp alone includes libsndfile and libsamplerate.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weft {

struct AudioFile {
  std::int64_t frames = 0, channels = 0, rate = 0;  // of the file
  std::int64_t clipped = 0;  // samples beyond full scale after averaging and resampling
};

// Whether this build has libsndfile and libsamplerate. Without them append_audio says what to install.
bool has_audio();

// Averages the channels of a file, resamples it to `rate` and appends a mu-law code for each sample. Error
// when the file is foreign, empty, truncated or absurd, or makes `tokens` longer than `most`.
AudioFile append_audio(const std::string& path, std::int64_t rate, std::int64_t most,
                       std::vector<std::uint16_t>& tokens);

// Mu-law codes (data/formats/mu_law.h) as a WAV file: mono, 16-bit PCM. Error for a token outside 0 to 255,
// an absurd rate, more than 2^31 - 1 bytes; the file appears whole or not at all.
void write_wav(const std::string& path, std::span<const std::int32_t> tokens, std::int64_t rate);

}  // namespace weft
