// SPDX-License-Identifier: MIT
// libFuzzer: any bytes as a PNG file. Only Error may come out, or all pixels of the size that is stated.
#include "data/png_file.h"
#include "kernels/view.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  try {
    const weft::PngImage image = weft::parse_png({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (static_cast<std::int64_t>(image.pixels.size()) != image.shape.tokens()) __builtin_trap();
  } catch (const weft::Error&) {}
  return 0;
}
