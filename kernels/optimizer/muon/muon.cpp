// SPDX-License-Identifier: MIT
// Muon on the CPU: the definition. GEMMs are those of linear layers: loops in f64, else OpenBLAS.
#include "kernels/optimizer/muon/muon.h"

#include "kernels/cpu.h"
#include "kernels/linear/linear.h"

#include <cmath>
#include <cstddef>
#include <vector>

namespace weft {
namespace {
template <class T>
void momentum(const MuonMomentum& k) {
  using W = wide_t<T>;
  T* u = k.u.as<T>();
  W* m = k.m.as<W>();
  const W *gradients = k.gradients.as<W>(), scale = k.results->update_scale;
  const W kept = k.step->momentum, rest = static_cast<W>(1 - k.step->momentum);
  const int64_t n = k.u.size();
#pragma omp parallel for schedule(static) if (n > kParallelElements)
  for (int64_t i = 0; i < n; ++i) {
    const W g = scale * gradients[i];
    if (scale != 0) m[i] = kept * m[i] + rest * g;
    u[i] = static_cast<T>(scale != 0 ? kept * m[i] + rest * g : 0);
  }
}

// A (rows, cols) matrix of the wide type of T, whose elements are rounded to T.
template <class T>
struct Rounded {
  using W = wide_t<T>;
  int64_t rows, cols;
  std::vector<W> values = std::vector<W>(static_cast<std::size_t>(rows * cols));

  TensorView view() { return {values.data(), dtype_of<W>, 2, {rows, cols, 1, 1, 1}}; }

  // Every element i becomes value(i).
  template <class Value>
  void set(Value value) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<W>(static_cast<T>(value(i)));
  }
};

// `at`: the first element of the matrix.
template <class T>
void orthogonalise(CpuQueue& q, T* at, const MuonMatrix& m) {
  using W = wide_t<T>;
  const bool tall = m.rows > m.cols;
  const int64_t side = m.side(), length = std::max(m.rows, m.cols), cols = m.cols;
  Rounded<T> x{side, length}, y{side, length}, a{side, side}, b{side, side};
  const auto place = [=](std::size_t i) {  // of element i of x
    const auto row = static_cast<int64_t>(i) / length, col = static_cast<int64_t>(i) % length;
    return tall ? col * cols + row : row * cols + col;
  };
  const double norm = std::sqrt(sum_of<double>(side * length, [=](int64_t i) {
    const double v = static_cast<double>(at[i]);
    return v * v;
  }));
  const W factor = static_cast<W>(1 / (norm + NewtonSchulz::kLeast));
  x.set([&](std::size_t i) { return factor * static_cast<W>(at[place(i)]); });
  const W ka = NewtonSchulz::kA, kb = NewtonSchulz::kB, kc = NewtonSchulz::kC;
  for (int step = 1; step <= NewtonSchulz::kSteps; ++step) {
    const W s = step == NewtonSchulz::kSteps ? static_cast<W>(m.scale()) : 1;
    run(q, LinearForward{.y = a.view(), .x = x.view(), .w = x.view(), .b = {}});
    a.set([&](std::size_t i) { return a.values[i]; });
    run(q, LinearForward{.y = b.view(), .x = a.view(), .w = a.view(), .b = {}});  // A is symmetric
    b.set([&](std::size_t i) { return kb * a.values[i] + kc * b.values[i]; });
    run(q, LinearBackward{
               .dx = {y.view()},
               .dw = {},
               .db = {},
               .dy = b.view(),
               .x = x.view(),
               .w = x.view(),
           });
    x.set([&](std::size_t i) { return s * ka * x.values[i] + s * y.values[i]; });
  }
  for (std::size_t i = 0; i < x.values.size(); ++i) at[place(i)] = static_cast<T>(x.values[i]);
}

template <class T>
void update(const MuonUpdate& k) {
  using W = wide_t<T>;
  W *p = k.master.as<W>(), *ema = k.ema.or_null<W>();
  const T* o = k.o.as<T>();
  const W rate = k.step->matrix_learning_rate, decay = static_cast<W>(k.weight_decay),
          kept = k.step->ema_decay;
  const int64_t n = k.master.size();
#pragma omp parallel for schedule(static) if (n > kParallelElements)
  for (int64_t i = 0; i < n; ++i) {
    p[i] -= rate * (static_cast<W>(o[i]) + decay * p[i]);
    if (ema) ema[i] = kept * ema[i] + (1 - kept) * p[i];
  }
  if (!k.compute) return;
  dispatch_float(k.compute.dtype, [&]<class C>() {
    std::transform(p, p + n, k.compute.as<C>(), [](W value) { return static_cast<C>(value); });
  });
}
}  // namespace

void check(const MuonMomentum& k) {
  const int64_t n = k.u.size();
  expect_floating(k.u, "muon_momentum: u");
  expect_size(k.u, k.u.dtype, n, "muon_momentum: u");
  expect_size(k.m, wide(k.u.dtype), n, "muon_momentum: m");
  expect_size(k.gradients, wide(k.u.dtype), n, "muon_momentum: gradients");
  WEFT_CHECK(k.step && k.results, "muon_momentum: needs StepScalars and StepResults");
}

void check(const NewtonSchulz& k) {
  expect_floating(k.x, "newton_schulz: x");
  expect_size(k.other, k.x.dtype, k.x.size(), "newton_schulz: other");
  expect_size(k.squares, k.x.dtype, 2 * k.square_elements(), "newton_schulz: squares");
  for (const MuonMatrix& m : k.matrices)
    WEFT_CHECK(
        m.offset >= 0 && m.rows > 0 && m.cols > 0 && m.offset + m.rows * m.cols <= k.x.cols(),
        "newton_schulz: a matrix (", m.rows, ", ", m.cols, ") at ", m.offset, " of ", k.x.cols());
}

void check(const MuonUpdate& k) {
  const int64_t n = k.master.size();
  expect_floating(k.o, "muon_update: o");
  expect_size(k.o, k.o.dtype, n, "muon_update: o");
  expect_size(k.master, wide(k.o.dtype), n, "muon_update: master");
  if (k.ema) expect_size(k.ema, k.master.dtype, n, "muon_update: ema");
  if (k.compute) expect_floating(k.compute, "muon_update: compute");
  if (k.compute) expect_size(k.compute, k.compute.dtype, n, "muon_update: compute");
  WEFT_CHECK(k.step && k.results, "muon_update: needs StepScalars and StepResults");
}

void compute(CpuQueue&, const MuonMomentum& k) {
  dispatch_float(k.u.dtype, [&]<class T>() { momentum<T>(k); });
}

void compute(CpuQueue& q, const NewtonSchulz& k) {
  for (int64_t row = 0; row < k.x.rows(); ++row)
    for (const MuonMatrix& m : k.matrices)
      dispatch_float(k.x.dtype, [&]<class T>() {
        orthogonalise(q, k.x.as<T>() + row * k.x.cols() + m.offset, m);
      });
}

void compute(CpuQueue&, const MuonUpdate& k) {
  if (k.results->update_scale == 0) return;
  dispatch_float(k.o.dtype, [&]<class T>() { update<T>(k); });
}
}  // namespace weft
