// SPDX-License-Identifier: MIT
// Images of red, green and blue, as PNG files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft {
struct Rgb {
  uint8_t red = 255, green = 255, blue = 255;
};

struct Image {
  int64_t width = 0, height = 0;
  std::vector<Rgb> pixels;  // (height, width)

  Image(int64_t w, int64_t h)
      : width(w),
        height(h),
        pixels(static_cast<std::size_t>(w * h)) {}

  Rgb& at(int64_t x, int64_t y) { return pixels[y * width + x]; }
};

Rgb mix(const Rgb& a, const Rgb& b, double t);  // t 0: a, 1: b
void fill(Image&, int64_t x, int64_t y, int64_t w, int64_t h, const Rgb&);

std::string png_bytes(const Image&);
// Files appear whole or not at all; Error when they cannot be written.
void write_png(const std::string& path, const Image&);
}  // namespace weft
