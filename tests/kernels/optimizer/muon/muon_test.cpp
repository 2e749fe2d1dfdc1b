// SPDX-License-Identifier: MIT
// Muon against its formula in plain f64 loops, and what Newton-Schulz does to singular values.
#include "kernels/optimizer/muon/muon.h"

#include "tests/testing.h"

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace weft {
namespace {
struct Dense {  // row-major
  std::size_t rows, cols;
  std::vector<double> values;

  double& at(std::size_t r, std::size_t c) { return values[r * cols + c]; }

  double at(std::size_t r, std::size_t c) const { return values[r * cols + c]; }
};

Dense transposed(const Dense& x) {
  Dense y{x.cols, x.rows, std::vector<double>(x.values.size())};
  for (std::size_t r = 0; r < x.rows; ++r)
    for (std::size_t c = 0; c < x.cols; ++c) y.at(c, r) = x.at(r, c);
  return y;
}

Dense times(const Dense& x, const Dense& y) {
  Dense z{x.rows, y.cols, std::vector<double>(x.rows * y.cols)};
  for (std::size_t r = 0; r < x.rows; ++r)
    for (std::size_t c = 0; c < y.cols; ++c)
      for (std::size_t i = 0; i < x.cols; ++i) z.at(r, c) += x.at(r, i) * y.at(i, c);
  return z;
}

Dense sum(double a, const Dense& x, double b, const Dense& y) {
  Dense z = x;
  for (std::size_t i = 0; i < z.values.size(); ++i) z.values[i] = a * x.values[i] + b * y.values[i];
  return z;
}

Dense orthogonalised(const Dense& u) {
  if (u.rows > u.cols) {
    Dense o = transposed(orthogonalised(transposed(u)));
    for (double& v : o.values)
      v *= std::sqrt(static_cast<double>(u.rows) / static_cast<double>(u.cols));
    return o;
  }
  double squares = 0;
  for (const double v : u.values) squares += v * v;
  Dense x = u;
  for (double& v : x.values) v /= std::sqrt(squares) + 1e-7;
  for (int step = 0; step < 5; ++step) {
    const Dense a = times(x, transposed(x));
    x = sum(3.4445, x, 1, times(sum(-4.7750, a, 2.0315, times(a, a)), x));
  }
  return x;
}

// Two rows of a wide, a tall and a square matrix with gaps, which hold 7.
template <class T>
struct Batch {
  const std::vector<MuonMatrix> matrices = {{0, 8, 21}, {176, 24, 10}, {424, 9, 9}};
  static constexpr int64_t period = 512, rows = 2;
  std::vector<T> before = std::vector<T>(rows * period, static_cast<T>(7.0f)), after,
                 other = before;

  Batch() {
    const std::vector<double> noise = normals(rows * period, 3);
    for (std::size_t i = 0; i < before.size(); ++i)
      if (inside(i % period)) before[i] = static_cast<T>(static_cast<float>(1e-4 * noise[i]));
    after = before;
    NewtonSchulz k{
        .x = view_of(after, {rows, period}),
        .matrices = matrices,
        .other = view_of(other, {rows, period}),
        .squares = {},
    };
    std::vector<T> squares(static_cast<std::size_t>(2 * k.square_elements()));
    k.squares = view_of(squares, {2, k.square_elements()});
    run(queue, k);
  }

  bool inside(std::size_t at) const {
    return std::ranges::any_of(matrices, [&](const auto& m) {
      const auto i = static_cast<int64_t>(at) - m.offset;
      return i >= 0 && i < m.rows * m.cols;
    });
  }

  Dense matrix(const std::vector<T>& of, int64_t row, const MuonMatrix& m) const {
    Dense x{static_cast<std::size_t>(m.rows), static_cast<std::size_t>(m.cols), {}};
    const auto first = of.begin() + row * period + m.offset;
    for (auto it = first; it != first + m.rows * m.cols; ++it)
      x.values.push_back(static_cast<double>(*it));
    return x;
  }

  void expect_formula(double tolerance) const {
    for (int64_t row = 0; row < rows; ++row)
      for (const MuonMatrix& m : matrices) {
        const Dense want = orthogonalised(matrix(before, row, m)), got = matrix(after, row, m);
        double error = 0, size = 0;
        for (std::size_t i = 0; i < want.values.size(); ++i) {
          error += std::pow(got.values[i] - want.values[i], 2);
          size += std::pow(want.values[i], 2);
        }
        EXPECT_LT(std::sqrt(error / size), tolerance) << m.rows << " x " << m.cols;
      }
    for (std::size_t i = 0; i < after.size(); ++i)
      if (!inside(i % period)) {
        EXPECT_EQ(static_cast<double>(after[i]), 7) << i;
      }
  }
};

TEST(Muon, NewtonSchulzIsTheFormula) {
  Batch<double>().expect_formula(1e-12);
  Batch<float>().expect_formula(1e-4);
  Batch<bf16>().expect_formula(5e-2);
}

// Whether x - least * identity is positive definite: Cholesky's square roots exist.
bool positive(Dense x, double least) {
  for (std::size_t i = 0; i < x.rows; ++i) x.at(i, i) -= least;
  for (std::size_t i = 0; i < x.rows; ++i) {
    if (x.at(i, i) <= 0) return false;
    for (std::size_t r = i + 1; r < x.rows; ++r)
      for (std::size_t c = i + 1; c < x.cols; ++c)
        x.at(r, c) -= x.at(r, i) * x.at(i, c) / x.at(i, i);
  }
  return true;
}

// The polynomial maps values that are not small to between its minimum 0.682 and its maximum 1.202.
// Singular values of o lie in (low, high) when o o^T - low^2 and high^2 - o o^T are positive
// definite.
TEST(Muon, SingularValuesBecomeNearlyOne) {
  const int64_t rows = 32, cols = 96;
  std::vector<double> x = normals(rows * cols, 8, 1e-3), other(x.size()), squares(2 * rows * rows);
  const auto spread = [&] {
    const Dense o{rows, cols, x};
    const Dense gram = times(o, transposed(o));
    return std::pair{positive(gram, 0.68 * 0.68), positive(sum(-1, gram, 0, gram), -1.21 * 1.21)};
  };
  EXPECT_EQ(spread(), (std::pair{false, true}));
  run(queue, NewtonSchulz{
                 .x = view_of(x, {1, rows * cols}),
                 .matrices = {{0, rows, cols}},
                 .other = view_of(other, {1, rows * cols}),
                 .squares = view_of(squares, {2, rows * rows}),
             });
  EXPECT_EQ(spread(), (std::pair{true, true}));
}

TEST(Muon, MomentumLooksAheadAndTheUpdateDecays) {
  std::vector<double> u{9, 9}, m{1, -2}, gradients{4, 8}, p{5, 6}, ema{1, 1};
  std::vector<float> compute{0, 0};
  StepScalars step{.matrix_learning_rate = 0.5f, .ema_decay = 0.75f, .momentum = 0.5f};
  StepResults results{.update_scale = 0.5f};
  const auto update = [&] {
    run(queue, MuonMomentum{
                   .u = view_of(u, {2}),
                   .m = view_of(m, {2}),
                   .gradients = view_of(gradients, {2}),
                   .step = &step,
                   .results = &results,
               });
    run(queue, MuonUpdate{
                   .master = view_of(p, {2}),
                   .ema = view_of(ema, {2}),
                   .compute = view_of(compute, {2}),
                   .o = view_of(u, {2}),
                   .weight_decay = 0.1,
                   .step = &step,
                   .results = &results,
               });
  };
  update();
  EXPECT_EQ(m, (std::vector<double>{1.5, 1}));
  EXPECT_EQ(u, (std::vector<double>{1.75, 2.5}));
  expect_near(p, {5 - 0.5 * (1.75 + 0.5), 6 - 0.5 * (2.5 + 0.6)}, 1e-15, "p");
  expect_near(ema, {0.75 + 0.25 * p[0], 0.75 + 0.25 * p[1]}, 1e-15, "ema");
  EXPECT_EQ(compute, (std::vector<float>{static_cast<float>(p[0]), static_cast<float>(p[1])}));
  const std::vector<double> p_before = p, m_before = m, ema_before = ema;
  results.update_scale = 0;
  gradients[0] = NAN;
  update();
  EXPECT_EQ(p, p_before);
  EXPECT_EQ(m, m_before);
  EXPECT_EQ(ema, ema_before);
  EXPECT_EQ(u, (std::vector<double>{0, 0}));
}

TEST(Muon, MomentumGrows) {
  const auto momentum = [](double target, int64_t updates) {
    StepScalars step;
    set_corrections(step, 0.9, 0.95, 0.0, target, updates);
    return step.momentum;
  };
  EXPECT_EQ(momentum(0.95, 1), 0.85f);
  EXPECT_FLOAT_EQ(momentum(0.95, 151), 0.9f);
  for (const int64_t updates : {301, 302, 100000}) EXPECT_EQ(momentum(0.95, updates), 0.95f);
  EXPECT_EQ(momentum(0.5, 1), 0.5f);
  EXPECT_EQ(momentum(0.5, 400), 0.5f);
}
}  // namespace
}  // namespace weft
