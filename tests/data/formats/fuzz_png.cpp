// SPDX-License-Identifier: MIT
// libFuzzer: any bytes as a PNG file, as they are and with the checksums of its chunks put right,
// without which little would get further. Only Error may come out, or all pixels of the size that
// is stated.
#include "data/formats/image_files.h"
#include "kernels/view.h"

#include <cstddef>
#include <string>
#include <zlib.h>

namespace {
uint32_t big_endian(const std::string& bytes, std::size_t at) {
  uint32_t value = 0;
  for (std::size_t k = 0; k < 4; ++k) value = value << 8 | static_cast<uint8_t>(bytes[at + k]);
  return value;
}

std::string with_checksums(std::string bytes) {
  for (std::size_t at = 8; at + 12 <= bytes.size();) {
    const std::size_t size = big_endian(bytes, at);
    if (size > bytes.size() - at - 12) break;
    const auto* data = reinterpret_cast<const Bytef*>(bytes.data()) + at + 4;
    const auto sum = static_cast<uint32_t>(crc32(0, data, static_cast<uInt>(size + 4)));
    for (std::size_t k = 0; k < 4; ++k)
      bytes[at + size + 8 + k] = static_cast<char>(sum >> (24 - 8 * k));
    at += size + 12;
  }
  return bytes;
}

void read(const std::string& bytes) {
  try {
    const weft::PngImage image = weft::parse_png(bytes, "fuzz");
    if (static_cast<int64_t>(image.pixels.size()) != image.shape.tokens()) __builtin_trap();
  } catch (const weft::Error&) {}
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  read(with_checksums(bytes));
  return 0;
}
