// SPDX-License-Identifier: MIT
// QK-norm and rotary positions: the definition, head by head.
#include "kernels/layers/rotary.h"

#include "kernels/cpu.h"
#include "kernels/diagnostics/launch_profile.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace weft {
namespace {
// body(n, h, turn) for each row n and head h of q, then of k. turn: cos and sin of its pairs, or
// null.
template <class W, class Kernel, class Body>
void for_heads(const Kernel& k, const TensorView& qkv, Body body) {
  const QkForm& f = k.form;
  const int64_t rows = qkv.rows(), time = qkv.shape[1];
  const W* table = f.table.or_null<W>();
  const auto *offsets = f.offsets.or_null<int32_t>(), *positions = f.positions.or_null<int32_t>();
#pragma omp parallel for schedule(static) if (qkv.size() > kParallelElements)
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t b = n / time, t = n % time + (f.first_at ? *f.first_at : 0);
    int64_t place = t + (offsets ? offsets[b] : 0);
    if (positions && t > 0) place = positions[b * f.positions.cols() + t - 1] + 1;
    const W* turn = table ? table + place % f.table.shape[0] * k.qk_size : nullptr;
    for (int64_t h = 0; h < 2 * k.heads; ++h) body(n, h, turn);
  }
}

// x = rotate(scale * x), by the angles of `turn` or, with direction -1, back.
template <class T>
void rotate(T* x, int64_t size, wide_t<T> scale, const wide_t<T>* turn, wide_t<T> direction) {
  using W = wide_t<T>;
  for (int64_t i = 0; i < size; i += 2) {
    const W a = static_cast<W>(x[i]) * scale, b = static_cast<W>(x[i + 1]) * scale;
    const W cos = turn ? turn[i] : 1, sin = turn ? direction * turn[i + 1] : 0;
    x[i] = static_cast<T>(a * cos - b * sin);
    x[i + 1] = static_cast<T>(a * sin + b * cos);
  }
}

// Of head h of q, then of k.
template <class W, class Kernel>
W gain_of(const Kernel& k, int64_t h) {
  return k.form.gain && h < k.heads ? k.form.gain.template as<W>()[h] : 1;
}

template <class T>
void forward(const QkForward& k) {
  using W = wide_t<T>;
  const int64_t size = k.qk_size, cols = k.qkv.cols();
  W* rstd = k.rstd.or_null<W>();
  for_heads<W>(k, k.qkv, [&](int64_t n, int64_t h, const W* turn) {
    T* x = k.qkv.as<T>() + n * cols + h * size;
    const W mean_square = dot(x, x, size) / static_cast<W>(size);
    const W r = k.form.norm ? 1 / std::sqrt(mean_square + static_cast<W>(k.form.eps)) : 1;
    if (rstd) rstd[n * 2 * k.heads + h] = r;
    rotate(x, size, r * gain_of<W>(k, h), turn, W{1});
  });
}

template <class T>
void backward(const QkBackward& k) {
  using W = wide_t<T>;
  const int64_t size = k.qk_size, cols = k.dqkv.cols();
  for_heads<W>(k, k.dqkv, [&](int64_t n, int64_t h, const W* turn) {
    T* d = k.dqkv.as<T>() + n * cols + h * size;
    if (!k.form.norm) return rotate(d, size, W{1}, turn, W{-1});
    const T* y = k.y.as<T>() + n * cols + h * size;
    const W r = k.rstd.as<W>()[n * 2 * k.heads + h], mean = dot(d, y, size) / static_cast<W>(size);
    const W gain = gain_of<W>(k, h);
    if (k.form.gain && h < k.heads)
      k.row_dgain.as<W>()[n * k.heads + h] = mean * static_cast<W>(size) / gain;
    W through[256];
    for (int64_t i = 0; i < size; ++i)
      through[i] = gain * static_cast<W>(d[i]) - static_cast<W>(y[i]) * mean / gain;
    rotate(through, size, r, turn, W{-1});
    std::transform(through, through + size, d, [](W v) { return static_cast<T>(v); });
  });
  if (k.form.gain && k.dgain)
    sum_rows<W>(k.dgain, k.dqkv.rows(), k.heads,
                [&](int64_t n, int64_t h) { return k.row_dgain.as<W>()[n * k.heads + h]; });
}

template <class Kernel>
void check_form(const Kernel& k, const TensorView& qkv) {
  const std::string kernel = Kernel::kName;
  const auto named = [&](const char* field) { return kernel + ": " + field; };
  const QkForm& f = k.form;
  expect_floating(qkv, named("qkv").c_str());
  WEFT_CHECK(qkv.rank == 3 && k.heads > 0 && k.qk_size % 8 == 0 && k.qk_size >= 8 &&
                 k.qk_size <= 256 && qkv.cols() >= 2 * k.heads * k.qk_size,
             kernel, ": qkv must be (B, T, 2 H Dqk or more), Dqk a multiple of 8 up to 256; got ",
             shape_text(qkv), " for ", k.heads, " heads of ", k.qk_size);
  expect_size(qkv, qkv.dtype, qkv.size(), named("qkv").c_str());
  const int64_t batch = qkv.shape[0];
  if (k.rstd)
    expect_matrix(k.rstd, wide(qkv.dtype), qkv.rows(), 2 * k.heads, named("rstd").c_str());
  if (f.table) {
    const int64_t places = f.table.shape[0];
    WEFT_CHECK(places > 0, kernel, ": the table of angles has no rows");
    expect_size(f.table, wide(qkv.dtype), places * k.qk_size, named("table").c_str());
  }
  WEFT_CHECK(!f.gain || f.norm, kernel, ": a gain without a norm");
  if (f.gain) expect_size(f.gain, wide(qkv.dtype), k.heads, named("gain").c_str());
  WEFT_CHECK(!f.offsets || !f.positions, kernel, ": offsets and positions exclude each other");
  if (f.offsets) expect_size(f.offsets, DType::i32, batch, named("offsets").c_str());
  if (!f.positions) return;
  WEFT_CHECK(f.positions.cols() >= qkv.shape[1], kernel, ": positions of ", qkv.shape[1],
             " rows a sequence, got ", shape_text(f.positions));
  expect_matrix(f.positions, DType::i32, batch, f.positions.cols(), named("positions").c_str());
}

// q and k are read and written.
template <class Kernel>
double moved_bytes(const Kernel& k, const TensorView& qkv) {
  return 2.0 * static_cast<double>(qkv.rows() * 2 * k.heads * k.qk_size * size_of(qkv.dtype));
}
}  // namespace

LaunchCost QkForward::cost() const {
  return {.bytes = moved_bytes(*this, qkv) + bytes_of({rstd}), .flops = 0, .shape = ""};
}

LaunchCost QkBackward::cost() const {
  return {
      .bytes = (form.norm ? 1.5 : 1) * moved_bytes(*this, dqkv) + bytes_of({rstd}),
      .flops = 0,
      .shape = "",
  };
}

void check(const QkForward& k) { check_form(k, k.qkv); }

void check(const QkBackward& k) {
  check_form(k, k.dqkv);
  if (!k.form.norm) return;
  expect_matrix(k.y, k.dqkv.dtype, k.dqkv.rows(), k.dqkv.cols(), "qk_backward: y");
  WEFT_CHECK(k.rstd, "qk_backward: rstd is missing");
  if (!k.form.gain) return;
  expect_matrix(k.row_dgain, wide(k.dqkv.dtype), k.dqkv.rows(), k.heads, "qk_backward: row_dgain");
  if (k.dgain) expect_size(k.dgain.view, wide(k.dqkv.dtype), k.heads, "qk_backward: dgain");
}

void compute(CpuQueue&, const QkForward& k) {
  dispatch_float(k.qkv.dtype, [&]<class T>() { forward<T>(k); });
}

void compute(CpuQueue&, const QkBackward& k) {
  dispatch_float(k.dqkv.dtype, [&]<class T>() { backward<T>(k); });
}
}  // namespace weft
