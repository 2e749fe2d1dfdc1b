// SPDX-License-Identifier: MIT
// Affine map of the last axis: y = x w^T + b. Accumulators have type wide(T); f32 is never tf32.
// Forms: plain loops and OpenBLAS on the CPU, cuBLASLt and DecodeLinear (`batch_invariant`) on
// CUDA.
#pragma once

#include "kernels/diagnostics/launch_profile.h"
#include "kernels/queue.h"

#include <string>
#include <vector>

namespace weft {
// FLOP of one GEMM of x (N, K) and w (M, K).
inline double linear_flops(const TensorView& x, const TensorView& w) {
  return 2 * static_cast<double>(x.size()) * static_cast<double>(w.rows());
}

inline std::string linear_shape(const TensorView& x, const TensorView& w) {
  return str("N ", x.rows(), ", K ", x.cols(), ", M ", w.rows());
}

struct LinearForward {
  static constexpr const char* kName = "linear_forward";
  TensorView y;  // (N, M)  T; any leading axes
  TensorView x;  // (N, K)  T
  TensorView w;  // (M, K)  T
  TensorView b;  // (M)     T, or absent
  // True: the bits of a row of y depend on its row of x only, which BLAS libraries do not promise.
  bool batch_invariant = false;

  std::vector<TensorView> outputs() const { return {y}; }

  LaunchCost cost() const {
    return {
        .bytes = bytes_of({y, x, w, b}),
        .flops = linear_flops(x, w),
        .shape = linear_shape(x, w),
    };
  }
};

WEFT_KERNEL(LinearForward);

//   dx = dy w,   dw = dy^T x,   db = sum_N dy      (fixed order of additions)
struct LinearBackward {
  static constexpr const char* kName = "linear_backward";
  GradView dx;    // (N, K)  T
  GradView dw;    // (M, K)  wide(T)
  GradView db;    // (M)     wide(T), or absent
  TensorView dy;  // (N, M)  T
  TensorView x;   // (N, K)  T; without dw only its shape and type are read
  TensorView w;   // (M, K)  T

  std::vector<TensorView> outputs() const { return {dx.view, dw.view, db.view}; }

  LaunchCost cost() const {
    return {
        .bytes = bytes_of({dx.view, dw.view, db.view, dy, x, w}),
        .flops = ((dx ? 1 : 0) + (dw ? 1 : 0)) * linear_flops(x, w),
        .shape = linear_shape(x, w),
    };
  }
};

WEFT_KERNEL(LinearBackward);

// The definition in plain loops, for any floating type. Tests compare BLAS with it.
void linear_forward_loops(const LinearForward&);
void linear_backward_loops(const LinearBackward&);

// CUDA: call this before a handle of cuBLASLt is destroyed, as the next handle may get its address.
void forget_algorithms(cublasLtContext*);
}  // namespace weft
