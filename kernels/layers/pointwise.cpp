// SPDX-License-Identifier: MIT
// Elementwise kernels: the definitions. Fixed pieces of kChunk elements, in parallel.
#include "kernels/layers/pointwise.h"

#include "kernels/cpu.h"
#include "kernels/layers/dropout_mask.h"

#include <algorithm>
#include <cstddef>

namespace weft {
namespace {
// Calls piece(begin, end) for pieces of [0, n); kChunk is a multiple of the eight elements of a
// Philox call.
template <class Piece>
void for_pieces(int64_t n, Piece piece) {
#pragma omp parallel for schedule(static) if (n > kParallelElements)
  for (int64_t i = 0; i < chunks_of(n); ++i) piece(i * kChunk, std::min(n, (i + 1) * kChunk));
}

template <class W>
W sigmoid(W x) {
  return 1 / (1 + exp_of(-x));
}

// Calls row(begin, end, bias) for rows of a matrix; bias is null when absent.
template <class T, class Row>
void for_rows(const TensorView& x, const TensorView& bias, Row row) {
  const int64_t rows = x.rows(), cols = x.cols();
  const T* b = bias.or_null<T>();
#pragma omp parallel for schedule(static) if (rows * cols > kParallelElements)
  for (int64_t n = 0; n < rows; ++n) row(n * cols, (n + 1) * cols, b);
}

// d/dv v s(av) = s + a v s (1 - s)
template <class W>
Activated<W> gelu(W v) {
  constexpr W slope = static_cast<W>(kGeluSlope);
  const W s = sigmoid(slope * v);
  return {v * s, s + slope * v * s * (1 - s)};
}

template <Activation kF, class T>
void activation_forward(const ActivationForward& k) {
  using W = wide_t<T>;
  T* y = k.y.as<T>();
  const T* x = k.x.as<T>();
  for_rows<T>(k.x, k.bias, [=](int64_t begin, int64_t end, const T* bias) {
    for (int64_t i = begin; i < end; ++i) {
      const W v = static_cast<W>(x[i]) + (bias ? static_cast<W>(bias[i - begin]) : 0);
      y[i] = static_cast<T>(activated<kF>(v, gelu<W>).y);
    }
  });
}

template <Activation kF, class T>
void activation_backward(const ActivationBackward& k) {
  using W = wide_t<T>;
  const T *x = k.x.as<T>(), *dy = k.dy.as<T>();
  Kept<T> dx(k.dx, k.x.size());
  for_rows<T>(k.x, k.bias, [&](int64_t begin, int64_t end, const T* bias) {
    constexpr int64_t kPiece = 64;  // a loop without branches vectorises
    for (int64_t first = begin; first < end; first += kPiece) {
      W piece[kPiece];
      const int64_t count = std::min(kPiece, end - first);
      for (int64_t c = 0; c < count; ++c) {
        const int64_t i = first + c;
        const W v = static_cast<W>(x[i]) + (bias ? static_cast<W>(bias[i - begin]) : 0);
        piece[c] = static_cast<W>(dy[i]) * activated<kF>(v, gelu<W>).slope;
      }
      dx.put(first, piece, count);
    }
  });
  const int64_t rows = k.x.rows(), cols = k.x.cols();
  if (k.dbias)
    sum_rows<W>(k.dbias, rows, cols, [&](int64_t n, int64_t c) { return dx.at(n * cols + c); });
}

template <class T>
void dropout(const Dropout& k) {
  using W = wide_t<T>;
  T* y = k.y.view.as<T>();
  const T* x = k.x.as<T>();
  const bool accumulate = k.y.accumulate;
  const DropoutMask mask(k.p, k.site, k.step, k.x.cols());
  const W scale = static_cast<W>(mask.scale());
  for_pieces(k.x.size(), [=](int64_t begin, int64_t end) {
    mask.over(begin, end, [=](int64_t i, bool kept) {
      store(y, i, kept ? static_cast<W>(x[i]) * scale : 0, accumulate);
    });
  });
}

template <class T>
void add(const Add& k) {
  T* out = k.out.view.as<T>();
  const T* x = k.x.as<T>();
  const bool accumulate = k.out.accumulate;
  for_pieces(k.x.size(), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) store(out, i, x[i], accumulate);
  });
}

template <class T>
void sum_of(const SumOf& k) {
  for_pieces(k.out.size(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      auto sum = static_cast<wide_t<T>>(k.xs[0].as<T>()[i]);
      for (std::size_t x = 1; x < k.xs.size(); ++x)
        sum += static_cast<wide_t<T>>(k.xs[x].as<T>()[i]);
      k.out.as<T>()[i] = static_cast<T>(sum);
    }
  });
}

template <class Y, class X>
void cast(const Cast& k) {
  Y* y = k.y.as<Y>();
  const X* x = k.x.as<X>();
  for_pieces(k.x.size(), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = static_cast<Y>(static_cast<wide_t<X>>(x[i]));
  });
}
}  // namespace

void check(const ActivationForward& k) {
  expect_floating(k.x, "activation_forward: x");
  expect_size(k.y, k.x.dtype, k.x.size(), "activation_forward: y");
  if (k.bias) expect_size(k.bias, k.x.dtype, k.x.cols(), "activation_forward: bias");
}

void check(const ActivationBackward& k) {
  expect_floating(k.x, "activation_backward: x");
  expect_size(k.dy, k.x.dtype, k.x.size(), "activation_backward: dy");
  expect_size(k.dx.view, k.x.dtype, k.x.size(), "activation_backward: dx");
  if (k.bias) expect_size(k.bias, k.x.dtype, k.x.cols(), "activation_backward: bias");
  if (k.dbias) expect_size(k.dbias.view, wide(k.x.dtype), k.x.cols(), "activation_backward: dbias");
}

void check(const Dropout& k) {
  expect_floating(k.x, "dropout: x");
  expect_size(k.y.view, k.x.dtype, k.x.size(), "dropout: y");
  check_dropout(k.p, k.step, Dropout::kName);
}

void check(const Add& k) {
  expect_floating(k.x, "add: x");
  expect_size(k.out.view, k.x.dtype, k.x.size(), "add: out");
}

void check(const SumOf& k) {
  expect_floating(k.out, "sum_of: out");
  WEFT_CHECK(!k.xs.empty() && k.xs.size() <= SumOf::kMost, "sum_of: 1 to ", SumOf::kMost,
             " terms, got ", k.xs.size());
  for (const TensorView& x : k.xs) expect_size(x, k.out.dtype, k.out.size(), "sum_of: a term");
}

void check(const Cast& k) {
  expect_floating(k.x, "cast: x");
  expect_floating(k.y, "cast: y");
  expect_size(k.y, k.y.dtype, k.x.size(), "cast: y");
}

void compute(CpuQueue&, const ActivationForward& k) {
  dispatch_activation(k.f, [&]<Activation kF>() {
    dispatch_float(k.x.dtype, [&]<class T>() { activation_forward<kF, T>(k); });
  });
}

void compute(CpuQueue&, const ActivationBackward& k) {
  dispatch_activation(k.f, [&]<Activation kF>() {
    dispatch_float(k.x.dtype, [&]<class T>() { activation_backward<kF, T>(k); });
  });
}

void compute(CpuQueue&, const Dropout& k) {
  dispatch_float(k.x.dtype, [&]<class T>() { dropout<T>(k); });
}

void compute(CpuQueue&, const Add& k) {
  dispatch_float(k.x.dtype, [&]<class T>() { add<T>(k); });
}

void compute(CpuQueue&, const SumOf& k) {
  dispatch_float(k.out.dtype, [&]<class T>() { sum_of<T>(k); });
}

void compute(CpuQueue&, const Cast& k) {
  dispatch_float(k.y.dtype,
                 [&]<class Y>() { dispatch_float(k.x.dtype, [&]<class X>() { cast<Y, X>(k); }); });
}
}  // namespace weft
