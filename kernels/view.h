// SPDX-License-Identifier: MIT
// What every kernel uses: views of tensors, checks of them, and dispatch on their element type.
#pragma once

#include "kernels/dtype.h"

#include <sstream>
#include <stdexcept>
#include <string>

namespace weft {
// Every failure is an Error. Its text says what was expected, what was found, and what to do. A
// program prints it on one line and returns 1.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Joins its arguments into one string ("got ", 3, " of ", 4).
template <class... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

template <class... Args>
[[noreturn]] void fail(const Args&... what) {
  throw Error(str(what...));
}

// Throws Error with the text, the condition and the source line, in release builds too. It runs on
// the host, a few times a launch.
#define WEFT_CHECK(condition, ...)                                                             \
  do {                                                                                         \
    if (!(condition))                                                                          \
      ::weft::fail(__VA_ARGS__, "  [", #condition, " at ", __FILE_NAME__, ":", __LINE__, "]"); \
  } while (0)

#ifndef __FILE_NAME__  // g++ before 12 and nvcc's front end
#define __FILE_NAME__ __FILE__
#endif

// Borrowed memory: contiguous, row-major. Null data means that the tensor is absent. CUDA kernels
// take it as an argument.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  int64_t shape[5] = {1, 1, 1, 1, 1};

  constexpr explicit operator bool() const { return data != nullptr; }

  constexpr int64_t size() const { return shape[0] * shape[1] * shape[2] * shape[3] * shape[4]; }

  // extent of the last axis
  constexpr int64_t cols() const { return rank == 0 ? 1 : shape[rank - 1]; }

  constexpr int64_t rows() const { return cols() == 0 ? 0 : size() / cols(); }

  int64_t bytes() const { return size() * size_of(dtype); }

  template <class T>
  T* as() const {
    WEFT_CHECK(dtype == dtype_of<T>, "expected elements of type ", name_of(dtype_of<T>), ", got ",
               name_of(dtype));
    return static_cast<T*>(data);
  }

  template <class T>
  T* or_null() const {
    return data ? as<T>() : nullptr;
  }
};

// "(4, 128, 512)"
inline std::string shape_text(const TensorView& v) {
  std::string s = "(";
  for (int i = 0; i < v.rank; ++i) s += (i ? ", " : "") + std::to_string(v.shape[i]);
  return s + ")";
}

// Where a backward kernel writes a gradient. The first writer of a step stores, later ones add
// (`accumulate`). Null: the gradient is not wanted.
struct GradView {
  TensorView view;
  bool accumulate = false;

  explicit operator bool() const { return static_cast<bool>(view); }
};

// Calls f.operator()<T>() with the C++ type of a floating dtype (CPU forms: f64, f32, f16, bf16).
template <class F>
void dispatch_float(DType t, F&& f) {
  switch (t) {
    case DType::f64: return f.template operator()<double>();
    case DType::f32: return f.template operator()<float>();
    case DType::f16: return f.template operator()<f16>();
    case DType::bf16: return f.template operator()<bf16>();
    case DType::i32:
    case DType::u8: break;
  }
  fail("expected a floating type, got ", name_of(t));
}

// The same with i32 and u8 too.
template <class F>
void dispatch_any(DType t, F&& f) {
  switch (t) {
    case DType::i32: return f.template operator()<int32_t>();
    case DType::u8: return f.template operator()<uint8_t>();
    case DType::f64:
    case DType::f32:
    case DType::f16:
    case DType::bf16: return dispatch_float(t, f);
  }
}

// Stores or adds `value` at element i of a gradient of element type T.
template <class T, class V>
inline void store(T* out, int64_t i, V value, bool accumulate) {
  using W = wide_t<T>;
  out[i] = static_cast<T>(accumulate ? static_cast<W>(out[i]) + static_cast<W>(value)
                                     : static_cast<W>(value));
}

// ---- checks of shapes and types that both forms of a kernel share; `what` is "kernel: name" ----

// `v` holds `size` elements of type `t`, in any shape.
inline void expect_size(const TensorView& v, DType t, int64_t size, const char* what) {
  WEFT_CHECK(v.dtype == t, what, " must be ", name_of(t), ", got ", name_of(v.dtype));
  WEFT_CHECK(v.size() == size, what, " must hold ", size, " elements, got ", shape_text(v));
  WEFT_CHECK(v.data != nullptr || size == 0, what, " is missing");
}

// `v` is (rows, cols) after its leading axes are joined.
inline void expect_matrix(const TensorView& v, DType t, int64_t rows, int64_t cols,
                          const char* what) {
  WEFT_CHECK(v.cols() == cols && v.size() == rows * cols, what, " must be (", rows, ", ", cols,
             "), got ", shape_text(v));
  expect_size(v, t, rows * cols, what);
}

inline void expect_floating(const TensorView& v, const char* what) {
  WEFT_CHECK(v.dtype == DType::f64 || v.dtype == DType::f32 || v.dtype == DType::f16 ||
                 v.dtype == DType::bf16,
             what, " must be f64, f32, f16 or bf16, got ", name_of(v.dtype));
}
}  // namespace weft
