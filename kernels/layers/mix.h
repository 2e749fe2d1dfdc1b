// SPDX-License-Identifier: MIT
// A weighted sum of tensors, each feature with weights of its own:
//   y = sum_i w_i x_i    element by element, w_i by columns
#pragma once

#include "kernels/queue.h"

#include <cstddef>
#include <vector>

namespace weft {
inline constexpr std::size_t kMixMost = 3;

struct MixForward {
  static constexpr const char* kName = "mix_forward";
  TensorView y;               // (N, C)  T; any leading axes
  std::vector<TensorView> x;  // (N, C)  T, each; 1 to kMixMost
  std::vector<TensorView> w;  // (C)     wide(T), of each

  std::vector<TensorView> outputs() const { return {y}; }

  std::vector<TensorView> inputs() const { return x; }
};

WEFT_KERNEL(MixForward);

// dx_i = w_i dy,   dw_i = sum_N dy x_i (in a fixed order). Terms may share their dx: it is
// written in the order of the terms, so that later ones accumulate.
struct MixBackward {
  static constexpr const char* kName = "mix_backward";
  std::vector<GradView> dx;   // (N, C)  T, each may be absent
  std::vector<GradView> dw;   // (C)     wide(T), each may be absent
  TensorView dy;              // (N, C)  T
  std::vector<TensorView> x;  // (N, C)  T
  std::vector<TensorView> w;  // (C)     wide(T)

  std::vector<TensorView> outputs() const {
    std::vector<TensorView> all;
    for (const GradView& g : dx) all.push_back(g.view);
    for (const GradView& g : dw) all.push_back(g.view);
    return all;
  }

  std::vector<TensorView> inputs() const { return x; }
};

WEFT_KERNEL(MixBackward);
}  // namespace weft
