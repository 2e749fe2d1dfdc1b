// SPDX-License-Identifier: MIT
// Elementwise kernels: the definitions. Fixed pieces of kChunk elements, in parallel.
#include "kernels/pointwise.h"

#include <algorithm>

#include "kernels/checks.h"
#include "kernels/cpu.h"
#include "kernels/philox.h"

namespace weft {
namespace {

// Calls piece(begin, end) for pieces of [0, n); kChunk is a multiple of the eight elements of a Philox call.
template <class Piece>
void for_pieces(std::int64_t n, Piece piece) {
#pragma omp parallel for schedule(static) if (n > kParallelElements)
  for (std::int64_t i = 0; i < chunks_of(n); ++i) piece(i * kChunk, std::min(n, (i + 1) * kChunk));
}

template <class W>
W sigmoid(W x) {
  return 1 / (1 + exp_of(-x));
}

template <class T>
void gelu_forward(const GeluForward& k) {
  using W = wide_t<T>;
  T* y = k.y.as<T>();
  const T* x = k.x.as<T>();
  constexpr W slope = static_cast<W>(kGeluSlope);
  for_pieces(k.x.size(), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const W v = static_cast<W>(x[i]);
      y[i] = static_cast<T>(v * sigmoid(slope * v));
    }
  });
}

// d/dx x s(ax) = s + a x s (1 - s)
template <class T>
void gelu_backward(const GeluBackward& k) {
  using W = wide_t<T>;
  T* dx = k.dx.view.as<T>();
  const T *x = k.x.as<T>(), *dy = k.dy.as<T>();
  const bool accumulate = k.dx.accumulate;
  constexpr W slope = static_cast<W>(kGeluSlope);
  for_pieces(k.x.size(), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const W v = static_cast<W>(x[i]), s = sigmoid(slope * v);
      store(dx, i, static_cast<W>(dy[i]) * (s + slope * v * s * (1 - s)), accumulate);
    }
  });
}

template <class T>
void dropout(const Dropout& k) {
  using W = wide_t<T>;
  T* y = k.y.view.as<T>();
  const T* h = k.h.as<T>();
  const T* x = k.x ? k.x.as<T>() : nullptr;
  const bool accumulate = k.y.accumulate;
  const std::uint32_t threshold = dropout_threshold(k.p), site = k.site;
  const W scale = static_cast<W>(65536.0 / (65536.0 - threshold));
  const std::uint64_t seed = threshold ? k.step->seed : 0, draw = threshold ? k.step->draw : 0;
  for_pieces(k.h.size(), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; threshold == 0 && i < end; ++i)
      store(y, i, (x ? static_cast<W>(x[i]) : 0) + static_cast<W>(h[i]), accumulate);
    for (std::int64_t group = begin; threshold > 0 && group < end; group += 8) {
      const Philox4 bits =
          philox4x32(dropout_counter(static_cast<std::uint64_t>(group / 8), site, draw), seed);
      const int count = static_cast<int>(std::min<std::int64_t>(8, end - group));
      for (int j = 0; j < count; ++j) {
        const std::uint32_t half_word = (bits[j / 2] >> (16 * (j % 2))) & 0xffffu;
        const W kept = half_word >= threshold ? static_cast<W>(h[group + j]) * scale : 0;
        store(y, group + j, (x ? static_cast<W>(x[group + j]) : 0) + kept, accumulate);
      }
    }
  });
}

template <class T>
void add(const Add& k) {
  T* out = k.out.view.as<T>();
  const T* x = k.x.as<T>();
  const bool accumulate = k.out.accumulate;
  for_pieces(k.x.size(), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) store(out, i, x[i], accumulate);
  });
}

template <class Y, class X>
void cast(const Cast& k) {
  Y* y = k.y.as<Y>();
  const X* x = k.x.as<X>();
  for_pieces(k.x.size(), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = static_cast<Y>(static_cast<wide_t<X>>(x[i]));
  });
}

}  // namespace

void check(const GeluForward& k) {
  expect_floating(k.x, "gelu_forward: x");
  expect_size(k.y, k.x.dtype, k.x.size(), "gelu_forward: y");
}

void check(const GeluBackward& k) {
  expect_floating(k.x, "gelu_backward: x");
  expect_size(k.dy, k.x.dtype, k.x.size(), "gelu_backward: dy");
  expect_size(k.dx.view, k.x.dtype, k.x.size(), "gelu_backward: dx");
}

void check(const Dropout& k) {
  expect_floating(k.h, "dropout: h");
  expect_size(k.y.view, k.h.dtype, k.h.size(), "dropout: y");
  if (k.x) expect_size(k.x, k.h.dtype, k.h.size(), "dropout: x");
  WEFT_CHECK(k.p >= 0 && dropout_threshold(k.p) < 65536, "dropout: 0 <= p < 1, got ", k.p);
  WEFT_CHECK(k.p == 0 || k.step, "dropout: p > 0 needs StepScalars");
}

void check(const Add& k) {
  expect_floating(k.x, "add: x");
  expect_size(k.out.view, k.x.dtype, k.x.size(), "add: out");
}

void check(const Cast& k) {
  expect_floating(k.x, "cast: x");
  expect_floating(k.y, "cast: y");
  expect_size(k.y, k.y.dtype, k.x.size(), "cast: y");
}

void run(CpuQueue&, const GeluForward& k) {
  check(k);
  dispatch_float(k.x.dtype, [&]<class T>() { gelu_forward<T>(k); });
}

void run(CpuQueue&, const GeluBackward& k) {
  check(k);
  dispatch_float(k.x.dtype, [&]<class T>() { gelu_backward<T>(k); });
}

void run(CpuQueue&, const Dropout& k) {
  check(k);
  dispatch_float(k.h.dtype, [&]<class T>() { dropout<T>(k); });
}

void run(CpuQueue&, const Add& k) {
  check(k);
  dispatch_float(k.x.dtype, [&]<class T>() { add<T>(k); });
}

void run(CpuQueue&, const Cast& k) {
  check(k);
  dispatch_float(k.y.dtype, [&]<class Y>() { dispatch_float(k.x.dtype, [&]<class X>() { cast<Y, X>(k); }); });
}

}  // namespace weft
