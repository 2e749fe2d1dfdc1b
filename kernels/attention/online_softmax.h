// SPDX-License-Identifier: MIT
// The online softmax of attention on the CPU (Dao et al. 2022, arXiv 2205.14135, algorithm 1).
#pragma once

#include <limits>
#include "kernels/attention/tiles.h"

namespace weft::attention {
// Scores into probabilities relative to the running maximum, E rows at a time, one a lane.
template <class W, int E> struct OnlineSoftmax {
  static constexpr W kNone = -std::numeric_limits<W>::infinity();
  W maximum[E], sum[E];

  OnlineSoftmax() {
    std::fill(maximum, maximum + E, kNone);
    std::fill(sum, sum + E, W(0));
  }
  // Goes on from a finished row: y is relative to e^lse, and its weights add up to 1.
  void resume(int row, W lse) {
    maximum[row] = lse;
    sum[row] = std::isinf(lse) ? W(0) : W(1);
  }
  // s (keys, E): scores in, probabilities out. y (dv, E)
  void tile(W* s, const Partners<E>& keys, W scale, W* y, int64_t dv) {
    W top[E], shift[E];
    std::copy(maximum, maximum + E, top);
    for (int k = 0; k < keys.count; ++k) {
      W* row = s + k * E;
      for (int l = 0; l < E; ++l) row[l] = keys.word[k] >> l & 1 ? row[l] * scale : kNone;
      for (int l = 0; l < E; ++l) top[l] = row[l] > top[l] ? row[l] : top[l];
    }
    for (int l = 0; l < E; ++l) shift[l] = top[l] == kNone ? W(0) : top[l];  // no key so far: e^-inf = 0
    rescale(top, shift, y, dv);
    for (int k = 0; k < keys.count; ++k) {
      W* row = s + k * E;
      for (int l = 0; l < E; ++l) row[l] = exp_of(row[l] - shift[l]);
      for (int l = 0; l < E; ++l) sum[l] += row[l];
    }
  }
  // Divides by the sums; rows that attend to nothing become 0.
  void finish(W* y, int64_t dv) const {
    for (int64_t d = 0; d < dv; ++d)
      for (int l = 0; l < E; ++l) y[d * E + l] = sum[l] == 0 ? W(0) : y[d * E + l] / sum[l];
  }
  W lse(int row) const { return maximum[row] + std::log(sum[row]); }

 private:
  void rescale(const W* top, const W* shift, W* y, int64_t dv) {
    if (std::equal(top, top + E, maximum)) return;
    W shrink[E];
    for (int l = 0; l < E; ++l) shrink[l] = exp_of(maximum[l] - shift[l]);
    for (int l = 0; l < E; ++l) sum[l] *= shrink[l];
    for (int64_t d = 0; d < dv; ++d)
      for (int l = 0; l < E; ++l) y[d * E + l] *= shrink[l];
    std::copy(top, top + E, maximum);
  }
};
}  // namespace weft::attention
