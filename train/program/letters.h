// SPDX-License-Identifier: MIT
// Words on images.
#pragma once

#include "train/program/png.h"

#include <cstdint>
#include <string_view>

namespace weft {
inline constexpr int64_t kLetterScale = 2;                  // pixels of a dot
inline constexpr int64_t kLetterWidth = 6 * kLetterScale;   // from letter to letter
inline constexpr int64_t kLetterHeight = 8 * kLetterScale;  // with what hangs below the line

// The upper left corner of the first letter is at (x, y). Capitals become small letters; what has
// no letter becomes a box; what lies outside of the image is left out.
void write_letters(Image&, int64_t x, int64_t y, std::string_view text, const Rgb&);
}  // namespace weft
