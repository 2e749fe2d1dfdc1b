// SPDX-License-Identifier: MIT
// What `local` and `strided` attend, in a form that kernels need no tables for.
#pragma once

#include <cstdint>

namespace weft {
inline constexpr int kTile = 64;  // queries or keys that a kernel works on together

// The pairs of a pass as a band of a regular view: position = column + stride * row, columns 0 ..
// stride - 1, n / stride whole rows: stride divides n. A query of row r sees, in its own column,
// the keys of rows r - reach + 1 .. r - skip that exist.
struct Band {
  int32_t stride = 0, reach = 0, skip = 0;

  explicit operator bool() const { return stride > 0; }

  bool attends(int64_t query, int64_t key) const {
    const int64_t back = (query - key) / stride;
    return key <= query && (query - key) % stride == 0 && back < reach && back >= skip;
  }

  friend bool operator==(const Band&, const Band&) = default;
};
}  // namespace weft
