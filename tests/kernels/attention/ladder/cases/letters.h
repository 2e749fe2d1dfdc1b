// SPDX-License-Identifier: MIT
// Letters of 5 x 7 points for labels of pictures, drawn twice as large.
#pragma once

#include "train/program/png.h"

#include <cstdint>
#include <string>

namespace weft::ladder {
inline constexpr int64_t kLetterHeight = 14, kLetterWidth = 12;  // pixels, with a gap to the right

inline int64_t width_of(const std::string& text) { return kLetterWidth * std::ssize(text) - 2; }

// Writes the text, which must fit into the image, with its upper left corner at (x, y). Error: a
// letter has no drawing.
void write(Image&, int64_t x, int64_t y, const std::string& text, const Rgb&);
}  // namespace weft::ladder
