// SPDX-License-Identifier: MIT
// Images from the bytes of an IDX file, the format of MNIST.
#pragma once

#include <cstdint>
#include <vector>

struct Images {
  int64_t count = 0, height = 0, width = 0;
  std::vector<uint8_t> pixels;  // (count, height, width)
};

// Throws std::runtime_error where the bytes are no IDX file of images: the text says what was
// expected and what was found.
Images read_idx(const std::vector<uint8_t>& file);
