// SPDX-License-Identifier: MIT
// A short causal convolution of each feature, added to its input. With x[b, t] = 0 for t < 0:
//   y[b, t] = x[b, t] + sum_i w_i x[b, t - i]    i = 0 .. 3, element by element
#pragma once

#include "kernels/queue.h"

#include <vector>

namespace weft {
inline constexpr int kCanonTaps = 4;

struct CanonForward {
  static constexpr const char* kName = "canon_forward";
  TensorView y, x;  // (B, T, C)  T
  TensorView w;     // (4 C)      wide(T): w_0, w_1 ...

  std::vector<TensorView> outputs() const { return {y}; }

  std::vector<TensorView> inputs() const { return {x, w}; }
};

WEFT_KERNEL(CanonForward);

// dx[b, t] = dy[b, t] + sum_i w_i dy[b, t + i],   dw_i = sum_(b, t) dy[b, t + i] x[b, t], with
// dy[b, t] = 0 for t >= T; sums over tokens in a fixed order
struct CanonBackward {
  static constexpr const char* kName = "canon_backward";
  GradView dx;       // (B, T, C)  T
  GradView dw;       // (4 C)      wide(T)
  TensorView dy, x;  // (B, T, C)  T
  TensorView w;      // (4 C)      wide(T)

  std::vector<TensorView> outputs() const { return {dx.view, dw.view}; }

  std::vector<TensorView> inputs() const { return {dy, x, w}; }
};

WEFT_KERNEL(CanonBackward);
}  // namespace weft
