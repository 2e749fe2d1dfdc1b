// SPDX-License-Identifier: MIT
// Sampling: an affine map of few rows, fused with its prologue and epilogue in a residual block.
//   y = residual + f(norm(x) w^T + b),   norm: LayerNormForward, rounded to T;   f:
//   kernels/layers/activation.h, or f(v) = v
// Accumulators have type wide(T); one rounding at the end. Rows do not depend on each other, to the
// last bit.
#pragma once

#include "kernels/layers/activation.h"
#include "kernels/queue.h"

#include <optional>
#include <vector>

namespace weft {
struct DecodeLinear {
  static constexpr const char* kName = "decode_linear";
  TensorView y;                   // (N, M)  T; any leading axes
  TensorView x;                   // (N, K)  T
  TensorView norm_w{}, norm_b{};  // (K)     wide(T), or both absent: x is taken as it is
  // CUDA prefetches the parameters (w, b, norm_w, norm_b): the kernel just before must not write
  // them.
  double eps = 1e-5;
  TensorView w;                   // (M, K)  T
  TensorView b;                   // (M)     T, or absent
  std::optional<Activation> f{};  // none: f(v) = v
  TensorView residual;            // (N, M)  T, or absent

  std::vector<TensorView> outputs() const { return {y}; }
};

WEFT_KERNEL(DecodeLinear);
}  // namespace weft
