// SPDX-License-Identifier: MIT
// Small image sets in the layouts of published ones.
#pragma once

#include "data/formats/image_set.h"
#include "src/files/npy.h"
#include "tests/data/formats/archives.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace weft {
constexpr int64_t kCifarBytes = 3072;

// Image `i` of a set: random bytes, planes of red, green and blue.
inline std::string image_planes(unsigned i, int64_t size = kCifarBytes) {
  std::mt19937 random(i + 1);
  std::string bytes(static_cast<std::size_t>(size), '\0');
  for (char& b : bytes) b = static_cast<char>(random());
  return bytes;
}

// (C, places) -> (places, C): the definition that readers are compared with.
inline std::vector<uint8_t> interleaved(const std::string& planes) {
  const std::size_t places = planes.size() / 3;
  std::vector<uint8_t> pixels;
  for (std::size_t p = 0; p < places; ++p)
    for (std::size_t c = 0; c < 3; ++c)
      pixels.push_back(static_cast<uint8_t>(planes[c * places + p]));
  return pixels;
}

// Images first ... first + count - 1 as CIFAR-10 records; image i has the label i % 10.
inline std::string cifar_records(unsigned first, unsigned count) {
  std::string bytes;
  for (unsigned i = first; i < first + count; ++i)
    bytes += std::string(1, static_cast<char>(i % 10)) + image_planes(i);
  return bytes;
}

// Images first ... as (count, side, side, 3).
inline std::vector<uint8_t> expected_images(unsigned first, unsigned count,
                                            int64_t size = kCifarBytes) {
  std::vector<uint8_t> pixels;
  for (unsigned i = first; i < first + count; ++i) {
    const auto image = interleaved(image_planes(i, size));
    pixels.insert(pixels.end(), image.begin(), image.end());
  }
  return pixels;
}

// As .npy: planes (count, 3 * side * side) or whole pixels (count, side, side, 3).
inline std::string npy_planes(unsigned first, unsigned count, int64_t size = kCifarBytes) {
  std::string bytes = npy_header("|u1", {count, size});
  for (unsigned i = first; i < first + count; ++i) bytes += image_planes(i, size);
  return bytes;
}

inline std::string npy_pixels(unsigned first, unsigned count, int64_t side = 32) {
  const auto pixels = expected_images(first, count, side * side * 3);
  return npy_header("|u1", {count, side, side, 3}) + std::string(pixels.begin(), pixels.end());
}

// A split of a file that was written.
inline std::vector<uint8_t> split_pixels(const std::string& path, const std::string& split) {
  const TokenDataset data(path, split, 256);
  std::vector<int32_t> tokens(static_cast<std::size_t>(data.size()));
  data.read(0, tokens);
  return {tokens.begin(), tokens.end()};
}
}  // namespace weft
