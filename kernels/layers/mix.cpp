// SPDX-License-Identifier: MIT
// Weighted sums of tensors: the definition.
#include "kernels/layers/mix.h"

#include "kernels/cpu.h"

namespace weft {
namespace {
template <class T>
void forward(const MixForward& k) {
  using W = wide_t<T>;
  const int64_t rows = k.y.rows(), cols = k.y.cols();
  T* y = k.y.as<T>();
#pragma omp parallel for schedule(static) if (rows * cols > kParallelElements)
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t c = 0; c < cols; ++c) {
      W sum = 0;
      for (std::size_t i = 0; i < k.x.size(); ++i)
        sum += k.w[i].as<W>()[c] * static_cast<W>(k.x[i].as<T>()[n * cols + c]);
      y[n * cols + c] = static_cast<T>(sum);
    }
  }
}

template <class T>
void backward(const MixBackward& k) {
  using W = wide_t<T>;
  const int64_t rows = k.dy.rows(), cols = k.dy.cols();
  const T* dy = k.dy.as<T>();
  for (std::size_t i = 0; i < k.x.size(); ++i) {
    const T* x = k.x[i].as<T>();
    const W* w = k.w[i].as<W>();
    if (k.dx[i]) {
      T* dx = k.dx[i].view.as<T>();
      const bool accumulate = k.dx[i].accumulate;
#pragma omp parallel for schedule(static) if (rows * cols > kParallelElements)
      for (int64_t n = 0; n < rows; ++n)
        for (int64_t c = 0; c < cols; ++c)
          store(dx, n * cols + c, w[c] * static_cast<W>(dy[n * cols + c]), accumulate);
    }
    if (k.dw[i])
      sum_rows<W>(k.dw[i], rows, cols, [=](int64_t n, int64_t c) {
        return static_cast<W>(dy[n * cols + c]) * static_cast<W>(x[n * cols + c]);
      });
  }
}

template <class Kernel>
void check_terms(const Kernel& k, const TensorView& of) {
  expect_floating(of, "mix: y");
  WEFT_CHECK(!k.x.empty() && k.x.size() <= kMixMost && k.w.size() == k.x.size(), "mix: 1 to ",
             kMixMost, " terms with weights, got ", k.x.size(), " and ", k.w.size());
  for (const TensorView& x : k.x) expect_size(x, of.dtype, of.size(), "mix: x");
  for (const TensorView& w : k.w) expect_size(w, wide(of.dtype), of.cols(), "mix: w");
}
}  // namespace

void check(const MixForward& k) {
  check_terms(k, k.y);
  expect_size(k.y, k.y.dtype, k.y.size(), "mix_forward: y");
}

void check(const MixBackward& k) {
  check_terms(k, k.dy);
  expect_size(k.dy, k.dy.dtype, k.dy.size(), "mix_backward: dy");
  WEFT_CHECK(k.dx.size() == k.x.size() && k.dw.size() == k.x.size(),
             "mix_backward: a gradient for each term");
  for (const GradView& g : k.dx)
    if (g) expect_size(g.view, k.dy.dtype, k.dy.size(), "mix_backward: dx");
  for (const GradView& g : k.dw)
    if (g) expect_size(g.view, wide(k.dy.dtype), k.dy.cols(), "mix_backward: dw");
}

void compute(CpuQueue&, const MixForward& k) {
  dispatch_float(k.y.dtype, [&]<class T>() { forward<T>(k); });
}

void compute(CpuQueue&, const MixBackward& k) {
  dispatch_float(k.dy.dtype, [&]<class T>() { backward<T>(k); });
}
}  // namespace weft
