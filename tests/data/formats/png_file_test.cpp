// SPDX-License-Identifier: MIT
// PNG files: what write_png writes reads back, every kind of file becomes 8 bits a channel, and
// whatever is damaged, truncated or huge is refused before memory is taken.
#include "data/formats/image_files.h"
#include "tests/temp_dir.h"
#include "train/program/png.h"

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <numeric>
#include <png.h>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {
namespace {
// A PNG file of these pixels, through libpng, in one of its formats.
std::string encoded(uint32_t height, uint32_t width, uint32_t format,
                    const std::vector<uint8_t>& pixels, const std::vector<uint8_t>& palette = {}) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = width;
  png.height = height;
  png.format = format;
  png.colormap_entries = static_cast<uint32_t>(palette.size() / 3);
  png_alloc_size_t bytes = 1 << 20;
  std::string file(bytes, '\0');
  EXPECT_TRUE(png_image_write_to_memory(&png, file.data(), &bytes, 0, pixels.data(), 0,
                                        palette.empty() ? nullptr : palette.data()))
      << png.message;
  file.resize(bytes);
  return file;
}

std::vector<uint8_t> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(count);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
  return bytes;
}

void set_big_endian(std::string& bytes, std::size_t at, uint32_t value) {
  for (int k = 0; k < 4; ++k)
    bytes[at + static_cast<std::size_t>(k)] = static_cast<char>(value >> (24 - 8 * k));
}

uint32_t crc(std::string_view bytes) {
  uint32_t c = 0xffffffffu;
  for (const char b : bytes) {
    c ^= static_cast<uint8_t>(b);
    for (int k = 0; k < 8; ++k) c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
  }
  return ~c;
}

// Another size in the first chunk, its checksum right.
std::string with_size(std::string file, uint32_t width, uint32_t height) {
  set_big_endian(file, 16, width);
  set_big_endian(file, 20, height);
  set_big_endian(file, 29, crc(std::string_view(file).substr(12, 17)));
  return file;
}

TEST(Png, WhatWritePngWritesReadsBack) {
  TempDir dir;
  for (const auto& [width, height] : {std::pair{1, 1}, {7, 3}, {32, 32}, {33, 65}}) {
    Image image(width, height);
    std::mt19937 random(1);
    for (Rgb& p : image.pixels)
      p = {static_cast<uint8_t>(random()), static_cast<uint8_t>(random()),
           static_cast<uint8_t>(random())};
    write_png(dir / "a.png", image);
    const PngImage read = read_png(dir / "a.png");
    EXPECT_EQ(read.shape, (ImageShape{height, width, 3}));
    std::vector<uint8_t> expected;
    for (const Rgb& p : image.pixels) expected.insert(expected.end(), {p.red, p.green, p.blue});
    EXPECT_EQ(read.pixels, expected);
  }
}

TEST(Png, EveryKindBecomesEightBits) {
  const auto grey = random_bytes(12, 1), rgb = random_bytes(36, 2), rgba = random_bytes(48, 3),
             grey_alpha = random_bytes(24, 4);
  const PngImage g = parse_png(encoded(3, 4, PNG_FORMAT_GRAY, grey), "a");
  EXPECT_EQ(g.shape, (ImageShape{3, 4, 1}));
  EXPECT_EQ(g.pixels, grey);
  EXPECT_EQ(parse_png(encoded(3, 4, PNG_FORMAT_RGB, rgb), "a").pixels, rgb);
  std::vector<uint8_t> opaque, opaque_grey;
  for (std::size_t i = 0; i < rgba.size(); ++i)
    if (i % 4 != 3) opaque.push_back(rgba[i]);
  for (std::size_t i = 0; i < grey_alpha.size(); i += 2) opaque_grey.push_back(grey_alpha[i]);
  const PngImage a = parse_png(encoded(3, 4, PNG_FORMAT_RGBA, rgba), "a");
  EXPECT_EQ(a.shape, (ImageShape{3, 4, 3}));
  EXPECT_EQ(a.pixels, opaque) << "the colours stored, whatever the transparency";
  const PngImage ga = parse_png(encoded(3, 4, PNG_FORMAT_GA, grey_alpha), "a");
  EXPECT_EQ(ga.shape, (ImageShape{3, 4, 1}));
  EXPECT_EQ(ga.pixels, opaque_grey);
  const PngImage p = parse_png(
      encoded(1, 4, PNG_FORMAT_RGB_COLORMAP, {0, 2, 1, 0}, {10, 20, 30, 40, 50, 60, 70, 80, 90}),
      "a");
  EXPECT_EQ(p.pixels, (std::vector<uint8_t>{10, 20, 30, 70, 80, 90, 40, 50, 60, 10, 20, 30}));
}

std::string chunk(const std::string& type, const std::string& data) {
  std::string bytes(4, '\0');
  set_big_endian(bytes, 0, static_cast<uint32_t>(data.size()));
  bytes += type + data + std::string(4, '\0');
  set_big_endian(bytes, bytes.size() - 4, crc(std::string_view(bytes).substr(4, data.size() + 4)));
  return bytes;
}

// A grey file of 2 x 1 pixels of 16 bits, 0x1280 and 0xffff, its pixels stored without compression.
std::string sixteen_bits() {
  const std::string header("\0\0\0\2\0\0\0\1\x10\0\0\0\0", 13);
  const std::string row("\0\x12\x80\xff\xff", 5);
  uint32_t a = 1, b = 0;
  for (const char c : row) a += static_cast<uint8_t>(c), b += a;
  std::string zlib = std::string("\x78\x01\x01\x05\0\xfa\xff", 7) + row + std::string(4, '\0');
  set_big_endian(zlib, zlib.size() - 4, b << 16 | a);
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", zlib) + chunk("IEND", "");
}

TEST(Png, SixteenBitsAreScaledNotTakenAsLinearLight) {
  const PngImage image = parse_png(sixteen_bits(), "a");
  EXPECT_EQ(image.shape, (ImageShape{1, 2, 1}));
  EXPECT_EQ(image.pixels, (std::vector<uint8_t>{0x12, 0xff}));
}

// A file with gamma, primaries or transparency in the chunk behind its header, of any kind, has the
// pixels of one without.
TEST(Png, PixelsAreTakenAsTheyAreStored) {
  std::vector<uint8_t> ramp(256), colours(768), palette;
  std::iota(ramp.begin(), ramp.end(), uint8_t{0});
  for (std::size_t i = 0; i < colours.size(); ++i) colours[i] = static_cast<uint8_t>(i % 251);
  for (int i = 0; i < 4; ++i) palette.insert(palette.end(), {50, 20, static_cast<uint8_t>(60 * i)});
  const std::vector<std::string> files = {
      encoded(16, 16, PNG_FORMAT_GRAY, ramp), encoded(16, 16, PNG_FORMAT_RGB, colours),
      encoded(8, 16, PNG_FORMAT_GA, ramp),
      encoded(1, 4, PNG_FORMAT_RGB_COLORMAP, {0, 1, 2, 3}, palette), sixteen_bits()};
  EXPECT_EQ(parse_png(files[0], "a").pixels, ramp);
  EXPECT_EQ(parse_png(files[1], "a").pixels, colours);
  EXPECT_EQ(parse_png(files[3], "a").pixels, palette);
  constexpr std::size_t kHeader = 33;  // bytes of the signature and IHDR
  const auto number = [](uint32_t value) {
    std::string bytes(4, '\0');
    set_big_endian(bytes, 0, value);
    return bytes;
  };
  std::string primaries;
  for (const uint32_t x : {31270u, 32900u, 64000u, 33000u, 30000u, 60000u, 15000u, 6000u})
    primaries += number(x);
  for (const std::string& file : files) {
    const auto want = parse_png(file, "a").pixels;
    for (const uint32_t gamma : {100000u, 55555u, 45455u, 22000u, 1u}) {
      const std::string with = chunk("gAMA", number(gamma)) + chunk("cHRM", primaries);
      EXPECT_EQ(parse_png(std::string(file).insert(kHeader, with), "a").pixels, want) << gamma;
    }
  }
}

TEST(Png, GreyAsColour) {
  const PngImage rgb = as_rgb({{1, 2, 1}, {5, 9}});
  EXPECT_EQ(rgb.shape, (ImageShape{1, 2, 3}));
  EXPECT_EQ(rgb.pixels, (std::vector<uint8_t>{5, 5, 5, 9, 9, 9}));
  EXPECT_EQ(as_rgb(rgb).pixels, rgb.pixels);
}

TEST(Png, RefusesWhatIsNoneAndHugeOnesBeforeMemoryIsTaken) {
  TempDir dir;
  EXPECT_EQ(error_of([&] { read_png(dir / "none.png"); }),
            dir / "none.png: cannot be opened: No such file or directory");
  EXPECT_EQ(error_of([] { parse_png("JFIF", "a.png"); }),
            "a.png: is not a PNG file (4 bytes of something else)");
  const std::string file = encoded(4, 4, PNG_FORMAT_RGB, random_bytes(48, 5));
  EXPECT_CONTAINS(error_of([&] { parse_png(with_size(file, 8193, 8192), "a.png"); }),
                  "a.png: has 8192 x 8193 pixels, more than the 67108864 that are read");
  for (const auto& [width, height] : {std::pair{0x7fffffffu, 0x7fffffffu},
                                      {0x7fffffffu, 1u},
                                      {1u, 0x7fffffffu},
                                      {0u, 4u},
                                      {0xffffffffu, 4u}})
    EXPECT_CONTAINS(error_of([&] { parse_png(with_size(file, width, height), "a.png"); }),
                    "a.png: ")
        << width << " x " << height;
  EXPECT_CONTAINS(error_of([&] { parse_png(with_size(file, 4, 5), "a.png"); }),
                  "a.png: is damaged");
}

TEST(Png, AHugeFileIsNotRead) {
  TempDir dir;
  write_file(dir / "a.png", encoded(4, 4, PNG_FORMAT_RGB, random_bytes(48, 5)));
  std::filesystem::resize_file(dir / "a.png", std::uintmax_t{1} << 34);  // takes no place
  EXPECT_CONTAINS(error_of([&] { read_png(dir / "a.png"); }),
                  "a.png: has 17179869184 bytes; at most ");
}

TEST(Png, TruncatedAnywhereAndDamagedAnywhereIsOneError) {
  const auto pixels = random_bytes(8 * 8 * 3, 6);
  const std::string file = encoded(8, 8, PNG_FORMAT_RGB, pixels);
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_NE(error_of([&] { parse_png(file.substr(0, size), "a"); }), "")
        << size << " of " << file.size();
  for (std::size_t at = 0; at < file.size(); ++at) {
    std::string bytes = file;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x20);
    PngImage image;
    if (error_of([&] { image = parse_png(bytes, "a"); }).empty()) {
      EXPECT_EQ(image.pixels, pixels) << "byte " << at << ": wrong pixels went unnoticed";
    }
  }
}
}  // namespace
}  // namespace weft
