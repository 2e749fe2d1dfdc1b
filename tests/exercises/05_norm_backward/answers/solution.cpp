// SPDX-License-Identifier: MIT
// dx loses the mean of g and its part along xhat, since mean and rstd follow x.
#include "tests/exercises/05_norm_backward/exercise.h"

NormGradients norm_backward(const Norm& k) {
  NormGradients out;
  out.dx.resize(k.x.size());
  out.dw.resize(k.w.size());
  out.db.resize(k.w.size());
  const auto size = static_cast<double>(k.cols);
  for (int64_t n = 0; n < k.rows; ++n) {
    const double *x = &k.x[n * k.cols], *dy = &k.dy[n * k.cols];
    const auto xhat = [&](int64_t c) { return (x[c] - k.mean[n]) * k.rstd[n]; };
    const auto g = [&](int64_t c) { return dy[c] * k.w[c]; };
    double mean_g = 0, mean_gx = 0;
    for (int64_t c = 0; c < k.cols; ++c) {
      mean_g += g(c) / size;
      mean_gx += g(c) * xhat(c) / size;
      out.dw[c] += dy[c] * xhat(c);
      out.db[c] += dy[c];
    }
    for (int64_t c = 0; c < k.cols; ++c)
      out.dx[n * k.cols + c] = k.rstd[n] * (g(c) - mean_g - xhat(c) * mean_gx);
  }
  return out;
}
