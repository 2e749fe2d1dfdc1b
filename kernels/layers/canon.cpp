// SPDX-License-Identifier: MIT
// Canon layers: the definition.
#include "kernels/layers/canon.h"

#include "kernels/cpu.h"

namespace weft {
namespace {
template <class T>
void forward(const CanonForward& k) {
  using W = wide_t<T>;
  const int64_t rows = k.x.rows(), cols = k.x.cols(), time = k.x.shape[k.x.rank - 2];
  T* y = k.y.as<T>();
  const T* x = k.x.as<T>();
  const W* w = k.w.as<W>();
#pragma omp parallel for schedule(static) if (rows * cols > kParallelElements)
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t c = 0; c < cols; ++c) {
      W sum = static_cast<W>(x[n * cols + c]);
      for (int64_t i = 0; i < kCanonTaps && i <= n % time; ++i)
        sum += w[i * cols + c] * static_cast<W>(x[(n - i) * cols + c]);
      y[n * cols + c] = static_cast<T>(sum);
    }
  }
}

template <class T>
void backward(const CanonBackward& k) {
  using W = wide_t<T>;
  const int64_t rows = k.x.rows(), cols = k.x.cols(), time = k.x.shape[k.x.rank - 2];
  const T *dy = k.dy.as<T>(), *x = k.x.as<T>();
  const W* w = k.w.as<W>();
  if (k.dx) {
    T* dx = k.dx.view.as<T>();
#pragma omp parallel for schedule(static) if (rows * cols > kParallelElements)
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t c = 0; c < cols; ++c) {
        W sum = static_cast<W>(dy[n * cols + c]);
        for (int64_t i = 0; i < kCanonTaps && n % time + i < time; ++i)
          sum += w[i * cols + c] * static_cast<W>(dy[(n + i) * cols + c]);
        store(dx, n * cols + c, sum, k.dx.accumulate);
      }
    }
  }
  for (int64_t i = 0; k.dw && i < kCanonTaps; ++i) {
    TensorView one = k.dw.view;
    one.data = one.as<W>() + i * cols;
    sum_rows<W>({one, k.dw.accumulate}, rows, cols, [=](int64_t n, int64_t c) {
      return n % time + i < time
                 ? static_cast<W>(dy[(n + i) * cols + c]) * static_cast<W>(x[n * cols + c])
                 : W{0};
    });
  }
}

void check_canon(const TensorView& x, const TensorView& w) {
  expect_floating(x, "canon: x");
  WEFT_CHECK(x.rank >= 2, "canon: x must be (B, T, C), got ", shape_text(x));
  expect_size(w, wide(x.dtype), kCanonTaps * x.cols(), "canon: w");
}
}  // namespace

void check(const CanonForward& k) {
  check_canon(k.x, k.w);
  expect_size(k.y, k.x.dtype, k.x.size(), "canon_forward: y");
}

void check(const CanonBackward& k) {
  check_canon(k.x, k.w);
  expect_size(k.dy, k.x.dtype, k.x.size(), "canon_backward: dy");
  if (k.dx) expect_size(k.dx.view, k.x.dtype, k.x.size(), "canon_backward: dx");
  if (k.dw) expect_size(k.dw.view, wide(k.x.dtype), k.w.size(), "canon_backward: dw");
}

void compute(CpuQueue&, const CanonForward& k) {
  dispatch_float(k.x.dtype, [&]<class T>() { forward<T>(k); });
}

void compute(CpuQueue&, const CanonBackward& k) {
  dispatch_float(k.x.dtype, [&]<class T>() { backward<T>(k); });
}
}  // namespace weft
