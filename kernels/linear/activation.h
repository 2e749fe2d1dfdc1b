// SPDX-License-Identifier: MIT
// A GEMM with the activation f (kernels/layers/activation.h) in its epilogue. Forward: the up
// projection of an MLP, then f. Backward: the gradient of the down projection's input, then f'.
// Accumulators have type wide(T).
#pragma once

#include "kernels/diagnostics/launch_profile.h"
#include "kernels/layers/activation.h"
#include "kernels/queue.h"

#include <vector>

namespace weft {
// Which CUDA kernels run. `automatic` takes hopper where it covers the case.
//   composed  a GEMM of the library, then kernels of pointwise.h: every type and shape
//   hopper    one kernel (compute capability 9.0, targets 90a)
// hopper covers f16 and bf16, inner axes of at most 512, and rows of a multiple of 16 bytes.
enum class LinearActivationForm : uint8_t { automatic, composed, hopper };
const char* name_of(LinearActivationForm);

struct LinearActivationCase {
  DType dtype;
  int64_t inner, cols;     // the axis summed over; columns of the result
  bool aligned;            // every tensor begins at a multiple of 16 bytes
  int compute_capability;  // 80, 90, ...
};

// The form that runs. Throws Error, with what is missing, where `wanted` does not cover the case.
LinearActivationForm choose_form(LinearActivationForm wanted, const LinearActivationCase&);

//   h = x w^T,   y = f(h + b)
// h is rounded to T before b is added, and kept without b.
struct LinearActivationForward {
  static constexpr const char* kName = "linear_activation_forward";
  TensorView y;  // (N, M)  T; any leading axes
  TensorView h;  // (N, M)  T, or absent: not wanted
  TensorView x;  // (N, K)  T
  TensorView w;  // (M, K)  T
  TensorView b;  // (M)     T
  Activation f = Activation::gelu;
  LinearActivationForm form = LinearActivationForm::automatic;

  std::vector<TensorView> outputs() const { return {y, h}; }

  LaunchCost cost() const;
};

WEFT_KERNEL(LinearActivationForward);

//   dh = f'(h + b) (dy w),   db = sum_N dh (before it is rounded; fixed order),   y = f(h + b)
// y has the bits of the forward pass; dw = dy^T y needs it. It may lie in h's memory, and then
// replaces h.
// The composed form rounds dy w to T before it multiplies by f'.
struct LinearActivationBackward {
  static constexpr const char* kName = "linear_activation_backward";
  TensorView dh;  // (N, M)  T
  TensorView y;   // (N, M)  T: memory of its own or that of h; or absent
  GradView db;    // (M)     wide(T), or absent
  TensorView dy;  // (N, C)  T: of the down projection's output
  TensorView w;   // (C, M)  T: of the down projection
  TensorView h;   // (N, M)  T
  TensorView b;   // (M)     T
  Activation f = Activation::gelu;
  LinearActivationForm form = LinearActivationForm::automatic;

  std::vector<TensorView> outputs() const { return {dh, y, db.view}; }

  LaunchCost cost() const;
};

WEFT_KERNEL(LinearActivationBackward);
}  // namespace weft
