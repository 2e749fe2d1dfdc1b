// SPDX-License-Identifier: MIT
// Sound files as mu-law codes, read and written. audio_file.cpp alone includes libsndfile and
// libsamplerate.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weft {
struct AudioFile {
  int64_t frames = 0, channels = 0, rate = 0;  // of the file
  // samples beyond full scale after averaging and resampling
  int64_t clipped = 0;
};

// Whether this build has libsndfile and libsamplerate. Without them append_audio says what to
// install.
bool has_audio();

// Averages the channels of a file, resamples it to `rate` and appends a mu-law code for each
// sample. Error when the file is foreign, empty, truncated or absurd, or makes `tokens` longer than
// `most`.
AudioFile append_audio(const std::string& path, int64_t rate, int64_t most,
                       std::vector<uint16_t>& tokens);

// Mu-law codes (below) as a WAV file: mono, 16-bit PCM. Error for a token outside 0 to 255,
// an absurd rate, more than 2^31 - 1 bytes; the file appears whole or not at all.
void write_wav(const std::string& path, std::span<const int32_t> tokens, int64_t rate);

// Mu-law companding (ITU-T G.711, the continuous form) with 256 levels:
//   f(x) = sign(x) ln(1 + 255 |x|) / ln 256      for x in [-1, 1]
//   code = floor((f(x) + 1) / 2 * 255 + 1 / 2)
// so -1 is 0, 0 is 128 and 1 is 255. Each code decodes to the x with f(x) = 2 code / 255 - 1.
constexpr int64_t kMuLawLevels = 256;

// x beyond [-1, 1] counts as its nearer end; x is no NaN.
inline uint8_t mu_law_encode(double x) {
  const double f = std::copysign(std::log1p(255 * std::min(std::abs(x), 1.0)) / std::log(256.0), x);
  return static_cast<uint8_t>(std::floor((f + 1) / 2 * 255 + 0.5));
}

inline double mu_law_decode(uint8_t code) {
  const double f = (2.0 * code - 255) / 255;
  return std::copysign((std::pow(256.0, std::abs(f)) - 1) / 255, f);
}
}  // namespace weft
