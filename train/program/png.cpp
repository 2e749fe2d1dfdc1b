// SPDX-License-Identifier: MIT
#include "train/program/png.h"

#include "kernels/view.h"
#include "src/files/files.h"

#include <cmath>
#include <ostream>
#include <png.h>
#include <string>

namespace weft {
static_assert(sizeof(Rgb) == 3, "libpng reads pixels of three bytes");

Rgb mix(const Rgb& a, const Rgb& b, double t) {
  const auto channel = [&](uint8_t x, uint8_t y) {
    return static_cast<uint8_t>(std::lround(x + (y - x) * t));
  };
  return {channel(a.red, b.red), channel(a.green, b.green), channel(a.blue, b.blue)};
}

void fill(Image& image, int64_t x, int64_t y, int64_t w, int64_t h, const Rgb& colour) {
  for (int64_t row = y; row < y + h; ++row)
    for (int64_t column = x; column < x + w; ++column) image.at(column, row) = colour;
}

std::string png_bytes(const Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = PNG_FORMAT_RGB;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::string encoded(bytes, '\0');
  if (!png_image_write_to_memory(&png, encoded.data(), &bytes, 0, image.pixels.data(), 0, nullptr))
    fail("libpng cannot encode an image of ", image.width, " x ", image.height,
         " pixels: ", png.message);
  encoded.resize(bytes);
  return encoded;
}

void write_png(const std::string& path, const Image& image) {
  write_whole_file(path, [bytes = png_bytes(image)](std::ostream& out) { out << bytes; });
}
}  // namespace weft
