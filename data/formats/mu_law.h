// SPDX-License-Identifier: MIT
// Mu-law companding (ITU-T G.711, the continuous form) with 256 levels:
//   f(x) = sign(x) ln(1 + 255 |x|) / ln 256 for x in [-1, 1];   code = floor((f(x) + 1) / 2 * 255 + 1 / 2)
// so -1 is 0, 0 is 128 and 1 is 255. Each code decodes to the x with f(x) = 2 code / 255 - 1.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace weft {

constexpr std::int64_t kMuLawLevels = 256;

// x beyond [-1, 1] counts as its nearer end; x is no NaN.
inline std::uint8_t mu_law_encode(double x) {
  const double f = std::copysign(std::log1p(255 * std::min(std::abs(x), 1.0)) / std::log(256.0), x);
  return static_cast<std::uint8_t>(std::floor((f + 1) / 2 * 255 + 0.5));
}

inline double mu_law_decode(std::uint8_t code) {
  const double f = (2.0 * code - 255) / 255;
  return std::copysign((std::pow(256.0, std::abs(f)) - 1) / 255, f);
}

}  // namespace weft
