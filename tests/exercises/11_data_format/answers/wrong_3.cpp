// SPDX-License-Identifier: MIT
// Wrong: sizes are multiplied before they are checked, and the product wraps.
// Rejected with: 2^64 pixels, which are 0 modulo 2^64: accepted
#include "tests/exercises/11_data_format/exercise.h"

#include <stdexcept>
#include <string>

namespace {
constexpr int64_t kHeader = 16;

int64_t size_at(const std::vector<uint8_t>& file, int64_t first) {
  int64_t size = 0;
  for (int64_t i = first; i < first + 4; ++i) size = size << 8 | file[i];
  return size;
}
}  // namespace

Images read_idx(const std::vector<uint8_t>& file) {
  const auto bytes = static_cast<int64_t>(file.size());
  if (bytes < kHeader || file[0] != 0 || file[1] != 0 || file[2] != 8 || file[3] != 3)
    throw std::runtime_error("expected an IDX file of images, which begins with 0 0 8 3 and sizes");
  Images images{size_at(file, 4), size_at(file, 8), size_at(file, 12), {}};
  int64_t pixels = 1;
  pixels = images.count * images.height * images.width;
  if (images.count == 0 || images.height == 0 || images.width == 0)
    throw std::runtime_error("no pixels");
  if (bytes != kHeader + pixels)
    throw std::runtime_error("expected a file of " + std::to_string(kHeader + pixels) +
                             " bytes, it has " + std::to_string(bytes));
  images.pixels.assign(file.begin() + kHeader, file.end());
  return images;
}
