// SPDX-License-Identifier: MIT
// Layer normalisation: the definition. Rows in parallel; the sums over rows column by column.
#include "kernels/layernorm.h"

#include <algorithm>

#include "kernels/checks.h"
#include "kernels/cpu.h"

namespace weft {
namespace {

constexpr std::int64_t kColumns = 64;  // columns of dw and db that one thread sums at a time

template <class T>
void forward(const LayerNormForward& k) {
  using W = wide_t<T>;
  const std::int64_t rows = k.x.rows(), cols = k.x.cols();
  const T* x = k.x.as<T>();
  T* y = k.y.as<T>();
  W *mean = k.mean.as<W>(), *rstd = k.rstd.as<W>();
  const W *w = k.w.as<W>(), *b = k.b.as<W>();
  const W eps = static_cast<W>(k.eps);
#pragma omp parallel for schedule(static) if (rows * cols > kParallelElements)
  for (std::int64_t n = 0; n < rows; ++n) {
    const T* xn = x + n * cols;
    T* yn = y + n * cols;
    const W m = sum_of<W>(cols, [=](std::int64_t c) { return static_cast<W>(xn[c]); }) / static_cast<W>(cols);
    const auto square = [=](std::int64_t c) {
      const W d = static_cast<W>(xn[c]) - m;
      return d * d;
    };
    const W r = 1 / std::sqrt(sum_of<W>(cols, square) / static_cast<W>(cols) + eps);
    for (std::int64_t c = 0; c < cols; ++c) {
      yn[c] = static_cast<T>((static_cast<W>(xn[c]) - m) * r * w[c] + b[c]);
    }
    mean[n] = m;
    rstd[n] = r;
  }
}

template <class T>
void input_gradient(const LayerNormBackward& k) {
  using W = wide_t<T>;
  const std::int64_t rows = k.x.rows(), cols = k.x.cols();
  const T *x = k.x.as<T>(), *dy = k.dy.as<T>();
  T* dx = k.dx.view.as<T>();
  const W *mean = k.mean.as<W>(), *rstd = k.rstd.as<W>(), *w = k.w.as<W>();
#pragma omp parallel for schedule(static) if (rows * cols > kParallelElements)
  for (std::int64_t n = 0; n < rows; ++n) {
    const T *xn = x + n * cols, *dyn = dy + n * cols;
    const W m = mean[n], r = rstd[n];
    const auto g = [=](std::int64_t c) { return static_cast<W>(dyn[c]) * w[c]; };
    const auto xhat = [=](std::int64_t c) { return (static_cast<W>(xn[c]) - m) * r; };
    const W mean_g = sum_of<W>(cols, g) / static_cast<W>(cols);
    const W mean_gx = sum_of<W>(cols, [=](std::int64_t c) { return g(c) * xhat(c); }) / static_cast<W>(cols);
    for (std::int64_t c = 0; c < cols; ++c) {
      store(dx, n * cols + c, r * (g(c) - mean_g - xhat(c) * mean_gx), k.dx.accumulate);
    }
  }
}

template <class T>
void parameter_gradients(const LayerNormBackward& k) {
  using W = wide_t<T>;
  const std::int64_t rows = k.x.rows(), cols = k.x.cols();
  const T *x = k.x.as<T>(), *dy = k.dy.as<T>();
  const W *mean = k.mean.as<W>(), *rstd = k.rstd.as<W>();
#pragma omp parallel for schedule(static) if (rows * cols > kParallelElements)
  for (std::int64_t first = 0; first < cols; first += kColumns) {
    const std::int64_t count = std::min(kColumns, cols - first);
    W dw[kColumns] = {}, db[kColumns] = {};
    for (std::int64_t n = 0; n < rows; ++n) {
      const T *xn = x + n * cols + first, *dyn = dy + n * cols + first;
      const W m = mean[n], r = rstd[n];
      for (std::int64_t c = 0; c < count; ++c) {
        dw[c] += static_cast<W>(dyn[c]) * ((static_cast<W>(xn[c]) - m) * r);
        db[c] += static_cast<W>(dyn[c]);
      }
    }
    for (std::int64_t c = 0; c < count; ++c) {
      if (k.dw) store(k.dw.view.as<W>(), first + c, dw[c], k.dw.accumulate);
      if (k.db) store(k.db.view.as<W>(), first + c, db[c], k.db.accumulate);
    }
  }
}

}  // namespace

void check(const LayerNormForward& k) {
  const std::int64_t rows = k.x.rows(), cols = k.x.cols();
  const DType t = k.x.dtype, w = wide(t);
  expect_floating(k.x, "layernorm_forward: x");
  expect_matrix(k.y, t, rows, cols, "layernorm_forward: y");
  expect_size(k.mean, w, rows, "layernorm_forward: mean");
  expect_size(k.rstd, w, rows, "layernorm_forward: rstd");
  expect_size(k.w, w, cols, "layernorm_forward: w");
  expect_size(k.b, w, cols, "layernorm_forward: b");
}

void check(const LayerNormBackward& k) {
  const std::int64_t rows = k.x.rows(), cols = k.x.cols();
  const DType t = k.x.dtype, w = wide(t);
  expect_floating(k.x, "layernorm_backward: x");
  expect_matrix(k.dy, t, rows, cols, "layernorm_backward: dy");
  expect_size(k.mean, w, rows, "layernorm_backward: mean");
  expect_size(k.rstd, w, rows, "layernorm_backward: rstd");
  expect_size(k.w, w, cols, "layernorm_backward: w");
  if (k.dx) expect_matrix(k.dx.view, t, rows, cols, "layernorm_backward: dx");
  if (k.dw) expect_size(k.dw.view, w, cols, "layernorm_backward: dw");
  if (k.db) expect_size(k.db.view, w, cols, "layernorm_backward: db");
}

void run(CpuQueue&, const LayerNormForward& k) {
  check(k);
  dispatch_float(k.x.dtype, [&]<class T>() { forward<T>(k); });
}

void run(CpuQueue&, const LayerNormBackward& k) {
  check(k);
  dispatch_float(k.x.dtype, [&]<class T>() {
    if (k.dx) input_gradient<T>(k);
    if (k.dw || k.db) parameter_gradients<T>(k);
  });
}

}  // namespace weft
