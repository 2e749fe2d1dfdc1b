// SPDX-License-Identifier: MIT
// The backward pass of a layer norm.
#include "tests/exercises/05_norm_backward/exercise.h"

NormGradients norm_backward(const Norm& k) {
  NormGradients g;
  g.dx.resize(k.x.size());
  g.dw.resize(k.w.size());
  g.db.resize(k.w.size());
  for (int64_t n = 0; n < k.rows; ++n) {
    for (int64_t c = 0; c < k.cols; ++c) {
      const int64_t i = n * k.cols + c;
      g.dx[i] = k.dy[i] * k.w[c] * k.rstd[n];  // yours: this takes mean and rstd for constants
    }
  }
  return g;
}
