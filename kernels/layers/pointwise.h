// SPDX-License-Identifier: MIT
// Element by element: bias and activation, dropout, addition, conversion.
#pragma once

#include "kernels/layers/activation.h"
#include "kernels/queue.h"
#include "kernels/step_scalars.h"

#include <cstddef>
#include <vector>

namespace weft {
// y = f(x + bias), f: kernels/layers/activation.h
struct ActivationForward {
  static constexpr const char* kName = "activation_forward";
  TensorView y, x;       // (N, C)  T; any leading axes
  TensorView bias = {};  // (C)     T, or absent
  Activation f = Activation::gelu;

  std::vector<TensorView> outputs() const { return {y}; }

  std::vector<TensorView> inputs() const { return {x, bias}; }
};

WEFT_KERNEL(ActivationForward);

// dx = f'(x + bias) dy,   dbias = sum_N dx (before it is rounded; fixed order)
struct ActivationBackward {
  static constexpr const char* kName = "activation_backward";
  GradView dx;           // (N, C)  T
  TensorView dy, x;      // (N, C)  T
  GradView dbias = {};   // (C)     wide(T), or absent
  TensorView bias = {};  // (C)     T, or absent
  Activation f = Activation::gelu;

  std::vector<TensorView> outputs() const { return {dx.view, dbias.view}; }

  std::vector<TensorView> inputs() const { return {x, dy, bias}; }
};

WEFT_KERNEL(ActivationBackward);

// y = mask * x / (1 - p). The mask is a function of (seed, draw, site, first_row + row, column,
// columns), see kernels/philox.h. The backward pass is the same kernel with dy for x.
struct Dropout {
  static constexpr const char* kName = "dropout";
  GradView y;    // (N, C)  T; any leading axes
  TensorView x;  // (N, C)  T
  double p = 0;  // 0 <= p < 1
  uint32_t site = 0;
  const StepScalars* step = nullptr;  // in the queue's memory: seed, draw, first_row

  std::vector<TensorView> outputs() const { return {y.view}; }

  std::vector<TensorView> inputs() const { return {x}; }
};

WEFT_KERNEL(Dropout);

// out = x, or out += x.
struct Add {
  static constexpr const char* kName = "add";
  GradView out;  // T
  TensorView x;  // T

  std::vector<TensorView> outputs() const { return {out.view}; }

  std::vector<TensorView> inputs() const { return {x}; }
};

WEFT_KERNEL(Add);

// out = xs[0] + xs[1] + ..., added in this order in wide(T) and rounded once; `out` may be one of
// them.
struct SumOf {
  static constexpr const char* kName = "sum_of";
  static constexpr std::size_t kMost = 8;
  TensorView out;              // T
  std::vector<TensorView> xs;  // T, each; 1 to kMost

  std::vector<TensorView> outputs() const { return {out}; }

  std::vector<TensorView> inputs() const { return xs; }
};

WEFT_KERNEL(SumOf);

// y = x in another floating type (CUDA: not f64), rounded to nearest even.
struct Cast {
  static constexpr const char* kName = "cast";
  TensorView y, x;

  std::vector<TensorView> outputs() const { return {y}; }

  std::vector<TensorView> inputs() const { return {x}; }
};

WEFT_KERNEL(Cast);
}  // namespace weft
