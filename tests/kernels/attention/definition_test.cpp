// SPDX-License-Identifier: MIT
// The definition of attention: numbers worked out by hand, and gradients by central differences.
#include "kernels/attention/definition.h"

#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <limits>
#include <random>

namespace weft {
namespace {
using definition::Head;
using definition::Matrix;
using definition::Output;

// Weights 1/4 and 3/4 for the last query; the one before it sees one key, the first one none.
TEST(AttentionDefinition, NumbersByHand) {
  Head x;
  x.q = {{1}, {1}, {1}};
  x.k = {{0}, {2 * std::log(3.0)}};
  x.v = {{4, 0}, {8, -4}};
  x.scale = 0.5;
  x.attends = [](std::size_t i, std::size_t j) { return j < i; };
  const Output out = definition::forward(x);
  EXPECT_EQ(out.lse[0], -std::numeric_limits<double>::infinity());
  EXPECT_EQ(out.y[0], (definition::Row{0, 0}));
  EXPECT_EQ(out.lse[1], 0);
  EXPECT_EQ(out.y[1], (definition::Row{4, 0}));
  EXPECT_NEAR(out.lse[2], std::log(4.0), 1e-15);
  EXPECT_NEAR(out.y[2][0], 7, 1e-14);
  EXPECT_NEAR(out.y[2][1], -3, 1e-14);
}

TEST(AttentionDefinition, LargeScoresDoNotOverflow) {
  const Head x{{{1000}}, {{1}, {1}}, {{1}, {3}}, 1, [](auto, auto) { return true; }};
  const Output out = definition::forward(x);
  EXPECT_NEAR(out.y[0][0], 2, 1e-12);
  EXPECT_NEAR(out.lse[0], 1000 + std::log(2.0), 1e-12);
}

TEST(AttentionDefinition, GradientsAreThoseOfDifferences) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  const auto matrix = [&](std::size_t rows, std::size_t columns) {
    Matrix m(rows, definition::Row(columns));
    for (definition::Row& row : m)
      for (double& value : row) value = normal(random);
    return m;
  };
  Head x{matrix(7, 3), matrix(5, 3), matrix(5, 4), 0.7,
         [](std::size_t i, std::size_t j) { return (i * 3 + j) % 4 < 2 && i != 2; }};
  const Matrix dy = matrix(7, 4);
  const auto objective = [&] {
    const Output out = definition::forward(x);
    double sum = 0;
    for (std::size_t i = 0; i < dy.size(); ++i) sum += definition::dot(dy[i], out.y[i]);
    return sum;
  };
  const auto expect_gradient = [&](Matrix& input, const Matrix& gradient) {
    for (std::size_t t = 0; t < input.size(); ++t)
      for (std::size_t d = 0; d < input[t].size(); ++d) {
        const double kept = input[t][d], h = 1e-6;
        input[t][d] = kept + h;
        const double above = objective();
        input[t][d] = kept - h;
        const double below = objective();
        input[t][d] = kept;
        EXPECT_NEAR(gradient[t][d], (above - below) / (2 * h), 1e-8) << t << ", " << d;
      }
  };
  const definition::Gradients g = definition::backward(x, definition::forward(x), dy);
  expect_gradient(x.q, g.dq);
  expect_gradient(x.k, g.dk);
  expect_gradient(x.v, g.dv);
}
}  // namespace
}  // namespace weft
