// SPDX-License-Identifier: MIT
// Whole numbers in numpy's .npy format (1.0 to 3.0): an array that lies within the bytes, or an
// Error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {
struct NpyArray {
  char kind = 'b';  // numpy's: 'b' bool, 'i' signed, 'u' unsigned
  int item = 1;     // bytes of an element: 1, 2, 4 or 8 (unsigned: up to 4)
  std::vector<int64_t> shape;
  std::string_view data;  // row-major, little-endian, in the bytes that were parsed

  int64_t size() const { return std::ssize(data) / item; }

  int64_t value(int64_t index) const;
};

bool is_npy(std::string_view bytes);  // by the first six
// `where` is what errors name as the file.
NpyArray parse_npy(std::string_view bytes, const std::string& where);

// Everything before the data of a file of version 1.0: `type` is numpy's ("|b1"), the data is
// row-major.
std::string npy_header(std::string_view type, const std::vector<int64_t>& shape);
}  // namespace weft
