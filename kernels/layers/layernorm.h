// SPDX-License-Identifier: MIT
// Layer normalisation over the last axis (Ba et al. 2016, arXiv 1607.06450, eq. 4), alone and fused
// with the residual connection before it.
//   y = w * (x - mean) * rstd + b,   rstd = 1 / sqrt(var + eps)
#pragma once

#include "kernels/queue.h"
#include "kernels/step_scalars.h"

#include <vector>

namespace weft {
struct LayerNormForward {
  static constexpr const char* kName = "layernorm_forward";
  TensorView y;           // (N, C)  type T; any leading axes
  TensorView mean, rstd;  // (N)     wide(T): kept for the backward pass
  TensorView x;           // (N, C)  T
  TensorView w, b;        // (C)     wide(T)
  double eps = 1e-5;

  std::vector<TensorView> outputs() const { return {y, mean, rstd}; }

  std::vector<TensorView> inputs() const { return {x, w, b}; }
};

WEFT_KERNEL(LayerNormForward);

// With xhat = (x - mean) * rstd and g = dy * w (sums over N in a fixed order):
//   dx = rstd * (g - mean_C(g) - xhat * mean_C(g * xhat)),  dw = sum_N dy * xhat,  db = sum_N dy
struct LayerNormBackward {
  static constexpr const char* kName = "layernorm_backward";
  GradView dx;            // (N, C)  T
  GradView dw, db;        // (C)     wide(T)
  TensorView dy, x;       // (N, C)  T
  TensorView mean, rstd;  // (N)     wide(T)
  TensorView w;           // (C)     wide(T)

  std::vector<TensorView> outputs() const { return {dx.view, dw.view, db.view}; }

  std::vector<TensorView> inputs() const { return {dy, x, mean, rstd, w}; }
};

WEFT_KERNEL(LayerNormBackward);

// A branch joins the residual stream, and the sum is normalised in the same pass:
//   h = x + mask * (branch + bias) / (1 - p),   y = w * (h - mean) * rstd + b
// The mask is a function of (seed, draw, site, first_row + row, column, columns), see
// kernels/philox.h. The norm reads h rounded to T. Without y there is no norm, and mean, rstd, w
// and b are absent.
struct ResidualForward {
  static constexpr const char* kName = "residual_forward";
  TensorView h;           // (N, C)  T; any leading axes
  TensorView y;           // (N, C)  T, or absent
  TensorView mean, rstd;  // (N)     wide(T): kept for the backward pass
  TensorView x, branch;   // (N, C)  T
  TensorView bias;        // (C)     T, or absent
  TensorView w, b;        // (C)     wide(T)
  double eps = 1e-5;
  double p = 0;  // 0 <= p < 1; 0 draws nothing
  uint32_t site = 0;
  const StepScalars* step = nullptr;  // in the queue's memory: seed, draw, first_row

  std::vector<TensorView> outputs() const { return {h, y, mean, rstd}; }

  std::vector<TensorView> inputs() const { return {x, branch, bias, w, b}; }
};

WEFT_KERNEL(ResidualForward);

// With g = dh + the dx of LayerNormBackward for dy, rounded to T:
//   dx = g,   dbranch = mask * g / (1 - p),   dbias = sum_N dbranch (before it is rounded)
// and dw and db as there. It also recomputes y, with the bits of the forward pass: the projection
// that reads y needs it for its weight gradient. y may lie in h's memory, and then replaces h.
struct ResidualBackward {
  static constexpr const char* kName = "residual_backward";
  GradView dx;            // (N, C)  T; absent without dy, as it would equal dh
  GradView dbranch;       // (N, C)  T
  GradView dbias;         // (C)     wide(T)
  GradView dw, db;        // (C)     wide(T); absent without dy
  TensorView y;           // (N, C)  T: memory of its own or that of h; or absent: not wanted
  TensorView dh;          // (N, C)  T: the gradient of h from its other readers, or absent
  TensorView dy;          // (N, C)  T; without it there is no norm, and the fields below are absent
  TensorView h;           // (N, C)  T
  TensorView mean, rstd;  // (N)     wide(T)
  TensorView w;           // (C)     wide(T)
  TensorView b;           // (C)     wide(T); absent without y
  double p = 0;
  uint32_t site = 0;
  const StepScalars* step = nullptr;

  std::vector<TensorView> outputs() const {
    return {dx.view, dbranch.view, dbias.view, dw.view, db.view, y};
  }

  std::vector<TensorView> inputs() const { return {dh, dy, h, mean, rstd, w, b}; }
};

WEFT_KERNEL(ResidualBackward);
}  // namespace weft
