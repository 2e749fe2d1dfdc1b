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

// The polynomials of Polar Express, arXiv 2505.16932; all but the last are of x / 1.01.
constexpr double kPolynomials[5][3] = {
    {8.28721201814563, -23.595886519098837, 17.300387312530933},
    {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
    {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
    {3.3184196573706015, -2.488488024314874, 0.51004894012372},
    {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
};

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
  for (double& v : x.values) v /= 1.01 * std::sqrt(squares) + 1e-7;
  for (int step = 0; step < 5; ++step) {
    const auto& [a, b, c] = kPolynomials[step];
    const double by = step < 4 ? 1.01 : 1;
    const Dense gram = times(x, transposed(x));
    x = sum(a / by, x, 1,
            times(sum(b / std::pow(by, 3), gram, c / std::pow(by, 5), times(gram, gram)), x));
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
    const std::vector<double> noise = normals(rows * period, 1);
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

// The polynomials map values from 0.002 to 1 to between 0.876 and 1.124.
// Singular values of o lie in (low, high) when o o^T - low^2 and high^2 - o o^T are positive
// definite.
TEST(Muon, SingularValuesBecomeNearlyOne) {
  const int64_t rows = 32, cols = 96;
  std::vector<double> x = normals(rows * cols, 8, 1e-3), other(x.size()), squares(2 * rows * rows);
  const auto spread = [&] {
    const Dense o{rows, cols, x};
    const Dense gram = times(o, transposed(o));
    return std::pair{positive(gram, 0.87 * 0.87), positive(sum(-1, gram, 0, gram), -1.13 * 1.13)};
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

// Two updates of a matrix of two rows, which begins behind another number, by hand.
TEST(Muon, RowsBecomeEquallyLongAndTheNormStays) {
  std::vector<double> x, v{7, 0, 0};
  StepResults results{.update_scale = 1};
  const auto normalise = [&](const std::vector<double>& o) {
    x = o;
    run(queue, NormaliseRows{
                   .x = view_of(x, {1, 5}),
                   .matrices = {{1, 2, 2}},
                   .v = view_of(v, {1, 3}),
                   .moments = {1},
                   .results = &results,
               });
  };
  normalise({7, 3, 4, 0, 10});
  expect_near(v, {7, 0.05 * 12.5, 0.05 * 50}, 1e-12, "v");
  const double first = std::sqrt(125.0 / 2);  // both rows are as long
  expect_near(x, {7, 0.6 * first, 0.8 * first, 0, first}, 1e-6, "x");
  normalise({7, 0, 2, 2, 0});  // a row that was longer counts for less: v is 0.69 and 2.48
  const double up = 0.95 * 0.625 + 0.05 * 2, down = 0.95 * 2.5 + 0.05 * 2;
  expect_near(v, {7, up, down}, 1e-12, "v");
  const double s = std::sqrt(8 / (4 / up + 4 / down));
  expect_near(x, {7, 0, 2 * s / std::sqrt(up), 2 * s / std::sqrt(down), 0}, 1e-6, "x");
  results.update_scale = 0;
  const std::vector<double> kept = v;
  normalise({7, NAN, 2, 2, 0});
  EXPECT_EQ(v, kept);
}

TEST(Muon, MomentsOfAPartMoveThereAndBack) {
  std::vector<double> part{1, 2, 3, 4, 5, 6}, dense(6, 0);
  const auto move = [&](bool back) {
    run(queue, MoveMoments{
                   .part = view_of(part, {6}),
                   .dense = view_of(dense, {2, 3}),
                   .begin = 1,
                   .period = 6,
                   .matrices = {{0, 2, 2}, {4, 1, 1}},
                   .back = back,
               });
  };
  move(false);  // elements 1 to 6 of 0, 1, 4; 6, 7, 10
  EXPECT_EQ(dense, (std::vector<double>{0, 1, 4, 6, 0, 0}));
  dense = {10, 11, 14, 16, 17, 20};
  move(true);
  EXPECT_EQ(part, (std::vector<double>{11, 2, 3, 14, 5, 16}));
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
