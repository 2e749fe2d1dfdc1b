// SPDX-License-Identifier: MIT
// Checks of shapes and types that the CPU and CUDA forms of a kernel share. `what` is "kernel: name".
#pragma once

#include "kernels/view.h"

namespace weft {

// `v` holds `size` elements of type `t`, in any shape.
inline void expect_size(const TensorView& v, DType t, std::int64_t size, const char* what) {
  WEFT_CHECK(v.dtype == t, what, " must be ", name_of(t), ", got ", name_of(v.dtype));
  WEFT_CHECK(v.size() == size, what, " must hold ", size, " elements, got ", shape_text(v));
  WEFT_CHECK(v.data != nullptr || size == 0, what, " is missing");
}

// `v` is (rows, cols) after its leading axes are joined.
inline void expect_matrix(const TensorView& v, DType t, std::int64_t rows, std::int64_t cols,
                          const char* what) {
  WEFT_CHECK(v.cols() == cols && v.size() == rows * cols, what, " must be (", rows, ", ", cols, "), got ",
             shape_text(v));
  expect_size(v, t, rows * cols, what);
}

inline void expect_floating(const TensorView& v, const char* what) {
  WEFT_CHECK(
      v.dtype == DType::f64 || v.dtype == DType::f32 || v.dtype == DType::f16 || v.dtype == DType::bf16, what,
      " must be f64, f32, f16 or bf16, got ", name_of(v.dtype));
}

}  // namespace weft
