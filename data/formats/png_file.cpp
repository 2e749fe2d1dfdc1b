// SPDX-License-Identifier: MIT
// PNG files through libpng's simplified interface, which keeps errors within the library.
#include "data/formats/png_file.h"

#include <png.h>

#include "data/formats/raw_file.h"
#include "kernels/view.h"

namespace weft {
namespace {

constexpr std::int64_t kMostPngBytes = 16 * kMostPngPixels;
constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";

std::uint32_t big_endian(std::string_view four) {
  std::uint32_t value = 0;
  for (const char byte : four) value = value << 8 | static_cast<std::uint8_t>(byte);
  return value;
}

// Every chunk from the first to IEND lies within the bytes; libpng does not miss what follows the pixels.
void check_whole(std::string_view bytes, const std::string& where) {
  constexpr std::size_t kAround = 12;  // length, type and checksum of a chunk
  if (!bytes.starts_with(kSignature))
    fail(where, ": is not a PNG file (", bytes.size(), " bytes of something else)");
  for (std::size_t at = kSignature.size();;) {
    const std::size_t left = bytes.size() - at;
    const std::size_t size = left < kAround ? 0 : big_endian(bytes.substr(at, 4));
    if (left < kAround || size > left - kAround)
      fail(where, ": is truncated or damaged: its ", bytes.size(), " bytes end within a chunk");
    if (bytes.substr(at + 4, 4) == "IEND") return;
    at += size + kAround;
  }
}

}  // namespace

PngImage parse_png(std::string_view bytes, const std::string& where) {
  check_whole(bytes, where);
  png_image png{};
  const std::unique_ptr<png_image, void (*)(png_image*)> guard(&png, png_image_free);
  png.version = PNG_IMAGE_VERSION;
  if (!png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()))
    fail(where, ": is damaged or no PNG file: ", png.message);
  const std::int64_t height = png.height, width = png.width;
  if (height > kMostPngPixels / width)
    fail(where, ": has ", height, " x ", width, " pixels, more than the ", kMostPngPixels, " that are read");
  const bool alpha = (png.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  const std::int64_t channels = (png.format & PNG_FORMAT_FLAG_COLOR) != 0 ? 3 : 1;
  // 16 bits count as sRGB, not as linear light. Transparency is read and left out: it changes no colour.
  png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  png.format = (channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY) | (alpha ? PNG_FORMAT_FLAG_ALPHA : 0);
  PngImage image{{height, width, channels}, std::vector<std::uint8_t>(PNG_IMAGE_SIZE(png))};
  if (!png_image_finish_read(&png, nullptr, image.pixels.data(), 0, nullptr))
    fail(where, ": is damaged or truncated: ", png.message);
  if (!alpha) return image;
  const std::int64_t stored = channels + 1;
  for (std::int64_t p = 0; p < height * width; ++p)
    for (std::int64_t c = 0; c < channels; ++c) image.pixels[p * channels + c] = image.pixels[p * stored + c];
  image.pixels.resize(image.shape.tokens());
  return image;
}

PngImage read_png(const std::string& path) {
  const std::vector<char> bytes = read_raw_file(path, kMostPngBytes);
  return parse_png({bytes.data(), bytes.size()}, path);
}

PngImage as_rgb(PngImage image) {
  if (image.shape.channels == 3) return image;
  PngImage rgb{{image.shape.height, image.shape.width, 3}, {}};
  rgb.pixels.reserve(image.pixels.size() * 3);
  for (const std::uint8_t grey : image.pixels) rgb.pixels.insert(rgb.pixels.end(), 3, grey);
  return rgb;
}

}  // namespace weft
