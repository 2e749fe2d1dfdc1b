// SPDX-License-Identifier: MIT
// The definition: the normalised row, then a dot product for each element.
#include "kernels/sampling/decode_linear.h"

#include "kernels/cpu.h"
#include "kernels/layers/layernorm.h"
#include "kernels/view.h"

#include <cstddef>
#include <vector>

namespace weft {
namespace {
template <class T>
TensorView view_of(std::vector<T>& values, int64_t rows, int64_t cols) {
  return {values.data(), dtype_of<T>, 2, {rows, cols, 1, 1, 1}};
}

template <class T>
std::vector<T> normalised(CpuQueue& queue, const DecodeLinear& k) {
  using W = wide_t<T>;
  const int64_t rows = k.x.rows(), inner = k.x.cols();
  std::vector<T> y(static_cast<std::size_t>(rows * inner));
  std::vector<W> mean(static_cast<std::size_t>(rows)), rstd(mean);
  run(queue, LayerNormForward{
                 .y = view_of(y, rows, inner),
                 .mean = view_of(mean, rows, 1),
                 .rstd = view_of(rstd, rows, 1),
                 .x = k.x,
                 .w = k.norm_w,
                 .b = k.norm_b,
                 .eps = k.eps,
             });
  return y;
}

template <class T>
void decode_linear(CpuQueue& queue, const DecodeLinear& k) {
  using W = wide_t<T>;
  const int64_t rows = k.x.rows(), inner = k.x.cols(), cols = k.w.rows();
  std::vector<T> normed;
  if (k.norm_w) normed = normalised<T>(queue, k);
  const T *x = k.norm_w ? normed.data() : k.x.as<T>(), *w = k.w.as<T>();
  const T *b = k.b.or_null<T>(), *residual = k.residual.or_null<T>();
  T* y = k.y.as<T>();
#pragma omp parallel for collapse(2) schedule(static) if (rows * cols * inner > kParallelElements)
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t m = 0; m < cols; ++m) {
      W v = dot(x + n * inner, w + m * inner, inner);
      if (b) v += static_cast<W>(b[m]);
      if (k.f == Activation::gelu) v = v / (1 + exp_of(-static_cast<W>(kGeluSlope) * v));
      if (k.f == Activation::relu2) v = relu2(v).y;
      if (residual) v += static_cast<W>(residual[n * cols + m]);
      y[n * cols + m] = static_cast<T>(v);
    }
  }
}
}  // namespace

void check(const DecodeLinear& k) {
  const int64_t rows = k.x.rows(), inner = k.x.cols(), cols = k.w.rows();
  const DType t = k.x.dtype;
  expect_floating(k.x, "decode_linear: x");
  WEFT_CHECK(inner > 0, "decode_linear: x needs at least one column, got ", shape_text(k.x));
  expect_matrix(k.w, t, cols, inner, "decode_linear: w");
  expect_matrix(k.y, t, rows, cols, "decode_linear: y");
  WEFT_CHECK(static_cast<bool>(k.norm_w) == static_cast<bool>(k.norm_b),
             "decode_linear: norm_w and norm_b come together");
  if (k.norm_w) expect_size(k.norm_w, wide(t), inner, "decode_linear: norm_w");
  if (k.norm_b) expect_size(k.norm_b, wide(t), inner, "decode_linear: norm_b");
  if (k.b) expect_size(k.b, t, cols, "decode_linear: b");
  if (k.residual) expect_matrix(k.residual, t, rows, cols, "decode_linear: residual");
}

void compute(CpuQueue& queue, const DecodeLinear& k) {
  if (k.y.size() == 0) return;
  dispatch_float(k.x.dtype, [&]<class T>() { decode_linear<T>(queue, k); });
}
}  // namespace weft
