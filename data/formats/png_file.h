// SPDX-License-Identifier: MIT
// PNG files as images of 8 bits a channel, through libpng. The stated size is checked before memory is taken.
#pragma once

#include "data/dataset.h"

namespace weft {

struct PngImage {
  ImageShape shape;                  // channels: 1 (a grey file) or 3 (red, green, blue)
  std::vector<std::uint8_t> pixels;  // (height, width, channels)
};

inline constexpr std::int64_t kMostPngPixels = std::int64_t{1} << 26;  // 8,192 x 8,192

// Palettes become colours, 16 bits become 8, transparency is dropped.
// Error when the file is missing, no PNG, damaged, truncated or too large; `where` is what it names.
PngImage read_png(const std::string& path);
PngImage parse_png(std::string_view bytes, const std::string& where);

// Three equal channels for a grey image; an image of three channels stays.
PngImage as_rgb(PngImage);

}  // namespace weft
