// SPDX-License-Identifier: MIT
// How attention sees q, k, v and y.
#pragma once

#include "kernels/dtype.h"

#include <cstdint>

namespace weft {
// q, k, v, or y: a (B, T, H, D) tensor whose batch, time and head axes may have any stride, so that
// heads are read in place from a packed projection. The last axis is contiguous. Strides in
// elements.
struct HeadsView {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t batch = 0, time = 0, heads = 0, size = 0;  // B, T, H, D
  int64_t batch_stride = 0, time_stride = 0, head_stride = 0;

  explicit operator bool() const { return data != nullptr; }

  double bytes() const { return static_cast<double>(batch * time * heads * size * size_of(dtype)); }

  template <class T>
  T* row(int64_t b, int64_t t, int64_t h) const {
    return static_cast<T*>(data) + b * batch_stride + t * time_stride + h * head_stride;
  }
};

// Heads first, first + step, ... of a layer.
struct HeadRange {
  int32_t first = 0, step = 1, count = 0;

  constexpr int64_t head(int64_t i) const { return first + step * i; }
};
}  // namespace weft
