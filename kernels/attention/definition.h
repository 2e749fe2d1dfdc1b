// SPDX-License-Identifier: MIT
// What attention means: one head of one sequence in plain loops and f64 (Child et al. 2019, arXiv
// 1904.10509, eq. 2-4). Query i attends the keys j of a set S_i, which the pattern chooses. All
// tests of attention compare with these two functions; attention.h says which forms are fast.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

namespace weft::definition {
using Row = std::vector<double>;
using Matrix = std::vector<Row>;  // a row for each position

struct Head {
  Matrix q, k, v;                                             // (T, Dqk), (Tk, Dqk), (Tk, Dv)
  double scale = 1;                                           // 1 / sqrt(Dqk)
  std::function<bool(std::size_t i, std::size_t j)> attends;  // whether key j is in S_i
};

struct Output {
  Matrix y;  // (T, Dv)
  Row lse;   // (T), the log-sum-exp of each query's scores: all that the backward pass keeps
};

struct Gradients {
  Matrix dq, dk, dv;
};

inline double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (std::size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
  return sum;
}

// sum += weight * x
inline void add(Row& sum, double weight, const Row& x) {
  for (std::size_t d = 0; d < x.size(); ++d) sum[d] += weight * x[d];
}

// lse_i = log sum_{j in S_i} exp(scale q_i . k_j)
// p_ij  = exp(scale q_i . k_j - lse_i)
// y_i   = sum_{j in S_i} p_ij v_j                 y_i = 0 and lse_i = -inf where S_i is empty
inline Output forward(const Head& x) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const std::size_t queries = x.q.size(), keys = x.k.size();
  Output out{Matrix(queries, Row(keys ? x.v[0].size() : 0)), Row(queries, kNone)};
  for (std::size_t i = 0; i < queries; ++i) {
    Row score(keys, kNone);  // exp(kNone) is 0: keys outside of S_i have no weight
    for (std::size_t j = 0; j < keys; ++j)
      if (x.attends(i, j)) score[j] = x.scale * dot(x.q[i], x.k[j]);
    // exp() overflows above 709, so that the largest score is taken off first.
    const double largest = keys ? *std::max_element(score.begin(), score.end()) : kNone;
    if (largest == kNone) continue;
    double sum = 0;
    for (const double s : score) sum += std::exp(s - largest);
    out.lse[i] = largest + std::log(sum);
    for (std::size_t j = 0; j < keys; ++j)
      if (score[j] != kNone) add(out.y[i], std::exp(score[j] - out.lse[i]), x.v[j]);
  }
  return out;
}

// From dy, the gradient of y:
// ds_ij = p_ij (dy_i . v_j - dy_i . y_i)          the gradient of the scores
// dq_i  = scale sum_{j in S_i} ds_ij k_j
// dk_j  = scale sum_{i: j in S_i} ds_ij q_i
// dv_j  = sum_{i: j in S_i} p_ij dy_i
inline Gradients backward(const Head& x, const Output& out, const Matrix& dy) {
  const auto zeros = [](const Matrix& like) {
    return Matrix(like.size(), Row(like.empty() ? 0 : like[0].size()));
  };
  Gradients g{zeros(x.q), zeros(x.k), zeros(x.v)};
  for (std::size_t i = 0; i < x.q.size(); ++i) {
    const double delta = dot(dy[i], out.y[i]);
    for (std::size_t j = 0; j < x.k.size(); ++j) {
      if (!x.attends(i, j)) continue;
      const double p = std::exp(x.scale * dot(x.q[i], x.k[j]) - out.lse[i]);
      const double ds = p * (dot(dy[i], x.v[j]) - delta);
      add(g.dq[i], x.scale * ds, x.k[j]);
      add(g.dk[j], x.scale * ds, x.q[i]);
      add(g.dv[j], p, dy[i]);
    }
  }
  return g;
}
}  // namespace weft::definition
