// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/attention.h"

namespace weft {

// Heads first, first + step, ... of a layer: those with one pattern.
struct HeadRange {
  std::int32_t first = 0, step = 1, count = 0;
  constexpr std::int64_t head(std::int64_t i) const { return first + step * i; }
};

// These heads of a view of all.
inline HeadsView heads_in(HeadsView x, const HeadRange& range) {
  x.data = static_cast<char*>(x.data) + range.first * x.head_stride * size_of(x.dtype);
  x.head_stride *= range.step;
  x.heads = range.count;
  return x;
}

}  // namespace weft
