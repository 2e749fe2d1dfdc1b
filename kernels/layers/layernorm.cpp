// SPDX-License-Identifier: MIT
// Layer normalisation and residual connection: the definition. The fused forms run their parts in
// order.
#include "kernels/layers/layernorm.h"

#include "kernels/cpu.h"
#include "kernels/layers/dropout_mask.h"

#include <cmath>
#include <cstddef>
#include <vector>

namespace weft {
namespace {
// A row of y from one of x; both may be the same.
template <class T>
void normalise(T* yn, const T* xn, int64_t cols, wide_t<T> mean, wide_t<T> rstd, const wide_t<T>* w,
               const wide_t<T>* b) {
  for (int64_t c = 0; c < cols; ++c)
    yn[c] = static_cast<T>((static_cast<wide_t<T>>(xn[c]) - mean) * rstd * w[c] + b[c]);
}

template <class T>
void forward(const LayerNormForward& k) {
  using W = wide_t<T>;
  const int64_t rows = k.x.rows(), cols = k.x.cols();
  const T* x = k.x.as<T>();
  T* y = k.y.as<T>();
  W *mean = k.mean.as<W>(), *rstd = k.rstd.as<W>();
  const W *w = k.w.as<W>(), *b = k.b.as<W>();
  const W eps = static_cast<W>(k.eps);
#pragma omp parallel for schedule(static) if (rows * cols > kParallelElements)
  for (int64_t n = 0; n < rows; ++n) {
    const T* xn = x + n * cols;
    const W m =
        sum_of<W>(cols, [=](int64_t c) { return static_cast<W>(xn[c]); }) / static_cast<W>(cols);
    const auto square = [=](int64_t c) {
      const W d = static_cast<W>(xn[c]) - m;
      return d * d;
    };
    const W r = 1 / std::sqrt(sum_of<W>(cols, square) / static_cast<W>(cols) + eps);
    normalise(y + n * cols, xn, cols, m, r, w, b);
    mean[n] = m;
    rstd[n] = r;
  }
}

// dx = the gradient of x, added to `other` unless that is null; dx and other may be the same.
template <class T>
void input_gradient(const LayerNormBackward& k, T* dx, const T* other) {
  using W = wide_t<T>;
  const int64_t rows = k.x.rows(), cols = k.x.cols();
  const T *x = k.x.as<T>(), *dy = k.dy.as<T>();
  const W *mean = k.mean.as<W>(), *rstd = k.rstd.as<W>(), *w = k.w.as<W>();
#pragma omp parallel for schedule(static) if (rows * cols > kParallelElements)
  for (int64_t n = 0; n < rows; ++n) {
    const T *xn = x + n * cols, *dyn = dy + n * cols;
    const W m = mean[n], r = rstd[n];
    const auto g = [=](int64_t c) { return static_cast<W>(dyn[c]) * w[c]; };
    const auto xhat = [=](int64_t c) { return (static_cast<W>(xn[c]) - m) * r; };
    const W mean_g = sum_of<W>(cols, g) / static_cast<W>(cols);
    const W mean_gx =
        sum_of<W>(cols, [=](int64_t c) { return g(c) * xhat(c); }) / static_cast<W>(cols);
    for (int64_t c = 0; c < cols; ++c) {
      const W before = other ? static_cast<W>(other[n * cols + c]) : 0;
      dx[n * cols + c] = static_cast<T>(before + r * (g(c) - mean_g - xhat(c) * mean_gx));
    }
  }
}

template <class T>
void parameter_gradients(const LayerNormBackward& k) {
  using W = wide_t<T>;
  const int64_t rows = k.x.rows(), cols = k.x.cols();
  const T *x = k.x.as<T>(), *dy = k.dy.as<T>();
  const W *mean = k.mean.as<W>(), *rstd = k.rstd.as<W>();
  const auto db = [=](int64_t n, int64_t c) { return static_cast<W>(dy[n * cols + c]); };
  const auto dw = [=](int64_t n, int64_t c) {
    return db(n, c) * ((static_cast<W>(x[n * cols + c]) - mean[n]) * rstd[n]);
  };
  if (k.dw) sum_rows<W>(k.dw, rows, cols, dw);
  if (k.db) sum_rows<W>(k.db, rows, cols, db);
}

template <class T>
void add_branch(const ResidualForward& k) {
  using W = wide_t<T>;
  const int64_t rows = k.x.rows(), cols = k.x.cols();
  const T *x = k.x.as<T>(), *branch = k.branch.as<T>(), *bias = k.bias.or_null<T>();
  T* h = k.h.as<T>();
  const DropoutMask mask(k.p, k.site, k.step, cols);
  const W scale = static_cast<W>(mask.scale());
#pragma omp parallel for schedule(static) if (rows * cols > kParallelElements)
  for (int64_t n = 0; n < rows; ++n) {
    mask.over(n * cols, (n + 1) * cols, [=](int64_t i, bool kept) {
      const W v = static_cast<W>(branch[i]) + (bias ? static_cast<W>(bias[i - n * cols]) : 0);
      h[i] = static_cast<T>(static_cast<W>(x[i]) + (kept ? v * scale : 0));
    });
  }
}

template <class T>
void residual_backward(const ResidualBackward& k) {
  using W = wide_t<T>;
  const TensorView& shaped = k.dy ? k.dy : k.dh;
  const int64_t rows = shaped.rows(), cols = shaped.cols();
  const T* dh = k.dh.or_null<T>();
  T* dx = k.dx.view.or_null<T>();
  std::vector<T> beside;  // g, where dx is not the place for it
  const T* g = dh;
  if (k.dy) {
    if (!dx || k.dx.accumulate) beside.resize(static_cast<std::size_t>(rows * cols));
    T* sum = beside.empty() ? dx : beside.data();
    const LayerNormBackward norm{
        .dx = {},
        .dw = k.dw,
        .db = k.db,
        .dy = k.dy,
        .x = k.h,
        .mean = k.mean,
        .rstd = k.rstd,
        .w = k.w,
    };
    input_gradient<T>(norm, sum, dh);
    parameter_gradients<T>(norm);
    for (int64_t i = 0; dx && k.dx.accumulate && i < rows * cols; ++i) store(dx, i, sum[i], true);
    g = sum;
  }
  const DropoutMask mask(k.p, k.site, k.step, cols);
  const W scale = static_cast<W>(mask.scale());
  Kept<T> dbranch(k.dbranch, rows * cols);
#pragma omp parallel for schedule(static) if (rows * cols > kParallelElements)
  for (int64_t n = 0; n < rows; ++n) {
    mask.over(n * cols, (n + 1) * cols, [&](int64_t i, bool kept) {
      dbranch.put(i, kept ? static_cast<W>(g[i]) * scale : 0);
    });
  }
  if (k.dbias)
    sum_rows<W>(k.dbias, rows, cols,
                [&](int64_t n, int64_t c) { return dbranch.at(n * cols + c); });
  if (!k.y) return;
  const W *mean = k.mean.as<W>(), *rstd = k.rstd.as<W>(), *w = k.w.as<W>(), *b = k.b.as<W>();
#pragma omp parallel for schedule(static) if (rows * cols > kParallelElements)
  for (int64_t n = 0; n < rows; ++n)
    normalise(k.y.as<T>() + n * cols, k.h.as<T>() + n * cols, cols, mean[n], rstd[n], w, b);
}
}  // namespace

void check(const LayerNormForward& k) {
  const int64_t rows = k.x.rows(), cols = k.x.cols();
  const DType t = k.x.dtype, w = wide(t);
  expect_floating(k.x, "layernorm_forward: x");
  expect_matrix(k.y, t, rows, cols, "layernorm_forward: y");
  expect_size(k.mean, w, rows, "layernorm_forward: mean");
  expect_size(k.rstd, w, rows, "layernorm_forward: rstd");
  expect_size(k.w, w, cols, "layernorm_forward: w");
  expect_size(k.b, w, cols, "layernorm_forward: b");
}

void check(const LayerNormBackward& k) {
  const int64_t rows = k.x.rows(), cols = k.x.cols();
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

void check(const ResidualForward& k) {
  const int64_t rows = k.x.rows(), cols = k.x.cols();
  const DType t = k.x.dtype, w = wide(t);
  expect_floating(k.x, "residual_forward: x");
  expect_matrix(k.h, t, rows, cols, "residual_forward: h");
  expect_matrix(k.branch, t, rows, cols, "residual_forward: branch");
  if (k.bias) expect_size(k.bias, t, cols, "residual_forward: bias");
  check_dropout(k.p, k.step, ResidualForward::kName);
  if (!k.y) return;
  expect_matrix(k.y, t, rows, cols, "residual_forward: y");
  expect_size(k.mean, w, rows, "residual_forward: mean");
  expect_size(k.rstd, w, rows, "residual_forward: rstd");
  expect_size(k.w, w, cols, "residual_forward: w");
  expect_size(k.b, w, cols, "residual_forward: b");
}

void check(const ResidualBackward& k) {
  WEFT_CHECK(k.dy || k.dh, "residual_backward: needs dy or dh");
  const TensorView& shaped = k.dy ? k.dy : k.dh;
  const int64_t rows = shaped.rows(), cols = shaped.cols();
  const DType t = shaped.dtype, w = wide(t);
  expect_floating(shaped, "residual_backward: dy or dh");
  if (k.dh) expect_matrix(k.dh, t, rows, cols, "residual_backward: dh");
  if (k.dx) expect_matrix(k.dx.view, t, rows, cols, "residual_backward: dx");
  if (k.dbranch) expect_matrix(k.dbranch.view, t, rows, cols, "residual_backward: dbranch");
  if (k.dbias) expect_size(k.dbias.view, w, cols, "residual_backward: dbias");
  check_dropout(k.p, k.step, ResidualBackward::kName);
  WEFT_CHECK(k.dy || (!k.dx && !k.dw && !k.db && !k.y),
             "residual_backward: dx, dw, db and y need dy");
  if (!k.dy) return;
  expect_matrix(k.h, t, rows, cols, "residual_backward: h");
  expect_size(k.mean, w, rows, "residual_backward: mean");
  expect_size(k.rstd, w, rows, "residual_backward: rstd");
  expect_size(k.w, w, cols, "residual_backward: w");
  if (k.dw) expect_size(k.dw.view, w, cols, "residual_backward: dw");
  if (k.db) expect_size(k.db.view, w, cols, "residual_backward: db");
  if (!k.y) return;
  expect_matrix(k.y, t, rows, cols, "residual_backward: y");
  expect_size(k.b, w, cols, "residual_backward: b");
}

void compute(CpuQueue&, const LayerNormForward& k) {
  dispatch_float(k.x.dtype, [&]<class T>() { forward<T>(k); });
}

void compute(CpuQueue&, const LayerNormBackward& k) {
  dispatch_float(k.x.dtype, [&]<class T>() {
    if (T* dx = k.dx.view.or_null<T>()) input_gradient<T>(k, dx, k.dx.accumulate ? dx : nullptr);
    parameter_gradients<T>(k);
  });
}

void compute(CpuQueue& q, const ResidualForward& k) {
  dispatch_float(k.x.dtype, [&]<class T>() { add_branch<T>(k); });
  if (!k.y) return;
  run(q, LayerNormForward{
             .y = k.y,
             .mean = k.mean,
             .rstd = k.rstd,
             .x = k.h,
             .w = k.w,
             .b = k.b,
             .eps = k.eps,
         });
}

void compute(CpuQueue&, const ResidualBackward& k) {
  dispatch_float((k.dy ? k.dy : k.dh).dtype, [&]<class T>() { residual_backward<T>(k); });
}
}  // namespace weft
