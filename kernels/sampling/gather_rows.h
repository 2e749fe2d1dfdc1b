// SPDX-License-Identifier: MIT
// Sampling: fills a cache from keys or values that one pass has computed for a whole prompt.
//   y[b, r] = x[0, source[r] / H, source[r] % H], or stays as it is where source[r] = -1
#pragma once

#include "kernels/attention/attention.h"

namespace weft {
struct GatherRows {
  static constexpr const char* kName = "gather_rows";
  TensorView y;                     // (B, R, D)     T: the cache of B texts with this prompt
  HeadsView x;                      // (1, T, H, D)  T, T * H < 2^31
  const int32_t* source = nullptr;  // (R)  in the queue's memory
};
WEFT_KERNEL(GatherRows);
}  // namespace weft
