// SPDX-License-Identifier: MIT
// Images as PNG (libpng), masks as .npy.
#include <png.h>

#include <ostream>

#include "src/files/files.h"
#include "src/files/npy.h"
#include "src/patterns/pattern.h"
#include "train/inspect/picture.h"

namespace weft {
namespace {

static_assert(sizeof(Rgb) == 3, "libpng reads pixels of three bytes");

}  // namespace

void write_png(const std::string& path, const Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = PNG_FORMAT_RGB;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::string encoded(bytes, '\0');
  if (!png_image_write_to_memory(&png, encoded.data(), &bytes, 0, image.pixels.data(), 0, nullptr))
    fail(
        str("libpng cannot encode an image of ", image.width, " x ", image.height, " pixels: ", png.message));
  write_whole_file(
      path, [&](std::ostream& out) { out.write(encoded.data(), static_cast<std::streamsize>(bytes)); });
}

void write_mask_npy(const std::string& path, const AttentionPattern& pattern, int head, Lengths n) {
  for (const std::int64_t length : {n.queries, n.keys})
    if (length < 1 || length > kMaxMaskLength)
      fail(str("a mask file holds one byte for each of length * length pairs: length must be between 1 and ",
               kMaxMaskLength, ", got ", length, "; choose a shorter --length"));
  write_whole_file(path, [&](std::ostream& out) {
    out << npy_header("|b1", {n.queries, n.keys});
    std::vector<std::int32_t> keys;
    std::string row;
    for (std::int64_t i = 0; i < n.queries && out; ++i) {
      keys.clear();
      pattern.keys_of(head, i, n.keys, keys);
      row.assign(static_cast<std::size_t>(n.keys), '\0');
      for (const std::int32_t j : keys) row[static_cast<std::size_t>(j)] = 1;
      out.write(row.data(), static_cast<std::streamsize>(row.size()));
    }
  });
}

}  // namespace weft
