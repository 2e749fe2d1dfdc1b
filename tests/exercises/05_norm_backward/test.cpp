// SPDX-License-Identifier: MIT
// Central differences of a plain forward pass, and properties that every right answer has.
#include "tests/exercises/05_norm_backward/exercise.h"
#include "tests/exercises/check.h"

#include <cmath>
#include <functional>
#include <random>
#include <string>

namespace {
using exercise::expect;

constexpr double kEps = 0.1;  // large, so that it is not forgotten

struct Problem {
  Norm norm;
  std::vector<double> b;
  NormGradients got;

  // The formulas of exercise.h. Fills mean and rstd, returns the sum of y * dy.
  double loss() {
    norm.mean.clear();
    norm.rstd.clear();
    double sum = 0;
    for (int64_t n = 0; n < norm.rows; ++n) {
      const double* x = &norm.x[n * norm.cols];
      double mean = 0, var = 0;
      for (int64_t c = 0; c < norm.cols; ++c) mean += x[c] / static_cast<double>(norm.cols);
      for (int64_t c = 0; c < norm.cols; ++c)
        var += (x[c] - mean) * (x[c] - mean) / static_cast<double>(norm.cols);
      norm.mean.push_back(mean);
      norm.rstd.push_back(1 / std::sqrt(var + kEps));
      for (int64_t c = 0; c < norm.cols; ++c)
        sum += (norm.w[c] * (x[c] - mean) * norm.rstd[n] + b[c]) * norm.dy[n * norm.cols + c];
    }
    return sum;
  }
};

Problem problem(int64_t rows, int64_t cols) {
  std::mt19937 random(8);
  const auto normals = [&](int64_t count) {
    std::normal_distribution<double> normal;
    std::vector<double> values(count);
    for (double& value : values) value = normal(random);
    return values;
  };
  Problem p;
  p.norm.rows = rows;
  p.norm.cols = cols;
  p.norm.x = normals(rows * cols);
  p.norm.dy = normals(rows * cols);
  p.norm.w = normals(cols);
  p.b = normals(cols);
  p.loss();
  p.got = norm_backward(p.norm);
  return p;
}

void compare(Problem& p, std::vector<double>& input, const std::vector<double>& got,
             const std::string& name) {
  expect(got.size() == input.size(), name, " must have ", input.size(), " numbers, it has ",
         got.size());
  for (std::size_t i = 0; i < input.size(); ++i) {
    const double kept = input[i], h = 1e-5;
    input[i] = kept + h;
    const double above = p.loss();
    input[i] = kept - h;
    const double below = p.loss();
    input[i] = kept;
    const double want = (above - below) / (2 * h);
    expect(std::abs(got[i] - want) < 1e-7, p.norm.rows, " rows of ", p.norm.cols, ": ", name, "[",
           i, "] is ", want, " by differences, yours is ", got[i]);
  }
}

void db_and_dw_are_sums_over_rows() {
  for (const int64_t rows : {1, 5}) {
    Problem p = problem(rows, 6);
    compare(p, p.b, p.got.db, "db");
    compare(p, p.norm.w, p.got.dw, "dw");
  }
}

// A constant added to a row changes its mean, and nothing else.
void dx_of_a_row_sums_to_0() {
  const Problem p = problem(1, 6);
  double sum = 0;
  for (const double value : p.got.dx) sum += value;
  expect(std::abs(sum) < 1e-12, "a constant added to a row changes no y, so its dx must sum to 0; ",
         "yours sums to ", sum, " (how does the mean depend on x?)");
}

// A row that is stretched about its mean gives almost the same y: all of the change is due to eps.
void dx_has_no_part_along_xhat_but_for_eps() {
  const Problem p = problem(1, 6);
  double along = 0, dy_xhat = 0;
  for (int64_t c = 0; c < 6; ++c) {
    const double xhat = (p.norm.x[c] - p.norm.mean[0]) * p.norm.rstd[0];
    along += p.got.dx[c] * xhat;
    dy_xhat += p.norm.dy[c] * p.norm.w[c] * xhat;
  }
  const double r = p.norm.rstd[0], want = r * dy_xhat * kEps * r * r;
  expect(std::abs(along - want) < 1e-12, "the part of dx along xhat must be ", want, ", yours is ",
         along, " (how does rstd depend on x?)");
}

void dx_is_that_of_differences() {
  for (const int64_t rows : {1, 4})
    for (const int64_t cols : {1, 2, 7}) {
      Problem p = problem(rows, cols);
      compare(p, p.norm.x, p.got.dx, "dx");
    }
}
}  // namespace

int main() {
  return exercise::run({
      {"dx of a row sums to 0", dx_of_a_row_sums_to_0},
      {"dx has no part along xhat, but for eps", dx_has_no_part_along_xhat_but_for_eps},
      {"dx is that of differences", dx_is_that_of_differences},
      {"db and dw are sums over rows", db_and_dw_are_sums_over_rows},
  });
}
