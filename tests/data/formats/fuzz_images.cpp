// SPDX-License-Identifier: MIT
// libFuzzer: any bytes as raw images: CIFAR-10 records or an .npy array. The first byte chooses
// which. Only Error may come out, and every image has its pixels, and a label or none.
#include "data/formats/image_files.h"
#include "kernels/view.h"

#include <cstddef>
#include <string_view>

namespace {
// Few bytes make many small images.
int64_t side_of(int kind) { return (kind & 5) == 5 ? 2 : 32; }

void read(int kind, std::string_view bytes, weft::ImageSplit& out) {
  if ((kind & 1) == 0) return weft::append_cifar_records(bytes, "fuzz", out);
  weft::append_array_images(weft::parse_npy(bytes, "fuzz"), "fuzz", side_of(kind), out);
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size == 0) return 0;
  weft::ImageSplit split;
  try {
    read(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1}, split);
  } catch (const weft::Error&) {
    return 0;
  }
  const int64_t side = side_of(data[0]);
  const int64_t images = weft::image_count(split, weft::square_rgb(side));
  if (images < 1 || static_cast<int64_t>(split.pixels.size()) != images * side * side * 3)
    __builtin_trap();
  if (!split.labels.empty() && static_cast<int64_t>(split.labels.size()) != images)
    __builtin_trap();
  return 0;
}
