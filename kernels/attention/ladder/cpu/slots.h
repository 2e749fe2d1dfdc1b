// SPDX-License-Identifier: MIT
// The idea of rung 5, which the rungs after it use, too: rows of positions that lie in slots, in
// the order that the pattern asks for.
#pragma once

#include "kernels/attention/ladder/cpu/products.h"

#include <algorithm>

namespace weft::ladder {
// The rows of x that 64 slots name -> (64, padded size); zeros for empty slots.
inline void gather(Block& out, const HeadsView& x, int64_t b, int64_t h, const int32_t* slots) {
  const int64_t columns = padded(x.size);
  out.assign(static_cast<std::size_t>(kTile * columns), 0.0f);
  for (int64_t r = 0; r < kTile; ++r)
    if (slots[r] >= 0)
      std::copy_n(x.row<const float>(b, slots[r], h), x.size, out.data() + r * columns);
}

// Adds (64, padded size) to the rows that 64 slots name.
inline void scatter(const HeadsView& x, int64_t b, int64_t h, const int32_t* slots,
                    const Block& rows) {
  const int64_t columns = padded(x.size);
  for (int64_t r = 0; r < kTile; ++r) {
    if (slots[r] < 0) continue;
    float* to = x.row<float>(b, slots[r], h);
    for (int64_t d = 0; d < x.size; ++d) to[d] += rows[r * columns + d];
  }
}

// The numbers (lse or delta of a head) that 64 slots name; 0 for empty slots.
inline void gather(float* out, const float* x, const int32_t* slots) {
  for (int r = 0; r < kTile; ++r) out[r] = slots[r] < 0 ? 0 : x[slots[r]];
}
}  // namespace weft::ladder
