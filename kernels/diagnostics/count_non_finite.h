// SPDX-License-Identifier: MIT
// The kernel of check_finite().
#pragma once

#include "kernels/queue.h"

namespace weft {
// count = number of elements that are NaN or infinite, at most 2^31 - 1.
struct CountNonFinite {
  static constexpr const char* kName = "count_non_finite";
  TensorView count;  // (1)  i32
  TensorView x;      // any floating type
};

WEFT_KERNEL(CountNonFinite);
}  // namespace weft
