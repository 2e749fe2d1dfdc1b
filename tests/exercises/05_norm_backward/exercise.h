// SPDX-License-Identifier: MIT
// Layer normalisation of N rows of C numbers, backward. Matrices are row-major.
//   mean_n = mean over c of x[n][c]       var_n = mean over c of (x[n][c] - mean_n)^2
//   y[n][c] = w[c] * (x[n][c] - mean_n) * rstd_n + b[c]       rstd_n = 1 / sqrt(var_n + eps)
#pragma once

#include <cstdint>
#include <vector>

struct Norm {
  int64_t rows = 0, cols = 0;
  std::vector<double> x, dy;       // (N, C); dy is the gradient of the loss with respect to y
  std::vector<double> mean, rstd;  // (N), kept by the forward pass
  std::vector<double> w;           // (C)
};

struct NormGradients {
  std::vector<double> dx;      // (N, C)
  std::vector<double> dw, db;  // (C)
};

NormGradients norm_backward(const Norm&);
