// SPDX-License-Identifier: MIT
// Layer normalisation over the last axis (Ba et al. 2016, arXiv 1607.06450, eq. 4).
//   y = w * (x - mean) * rstd + b,   rstd = 1 / sqrt(var + eps)
#pragma once

#include "kernels/queue.h"

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
void check(const LayerNormForward&);  // shapes and types; both forms begin with it
void run(CpuQueue&, const LayerNormForward&);
void run(CudaQueue&, const LayerNormForward&);

// With xhat = (x - mean) * rstd and g = dy * w:
//   dx = rstd * (g - mean_C(g) - xhat * mean_C(g * xhat)),  dw = sum_N dy * xhat,  db = sum_N dy
// The sums over N are taken in a fixed order: same inputs, same bits.
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
void check(const LayerNormBackward&);  // shapes and types; both forms begin with it
void run(CpuQueue&, const LayerNormBackward&);
void run(CudaQueue&, const LayerNormBackward&);

}  // namespace weft
