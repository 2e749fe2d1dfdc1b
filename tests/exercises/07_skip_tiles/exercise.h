// SPDX-License-Identifier: MIT
// Attention of one head over tiles of queries and keys. The problem counts what is computed.
#pragma once

#include "kernels/attention/tile_tables.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

using Row = std::vector<double>;
using Matrix = std::vector<Row>;  // a row for each position

// q, k and v of one head, and the pairs that are attended.
class Problem {
 public:
  Problem(int64_t positions, std::function<bool(int64_t i, int64_t j)> attends);

  int64_t positions() const;  // queries, and keys
  int64_t size() const;       // numbers in a row of v

  bool attends(int64_t i, int64_t j) const;  // the predicate of the pattern
  double score(int64_t i, int64_t j) const;  // scale q_i . k_j
  const Row& value(int64_t j) const;         // row j of v

  int64_t asked() const { return asked_; }  // calls of attends()

  int64_t computed() const { return computed_; }  // calls of score()

 private:
  void check(const char* what, int64_t position) const;

  Matrix q_, k_, v_;
  std::function<bool(int64_t, int64_t)> attends_;
  mutable int64_t asked_ = 0, computed_ = 0;
};

// The softmax of one query, key by key.
class Softmax {
 public:
  explicit Softmax(int64_t size)
      : y_(static_cast<std::size_t>(size)) {}

  void add(double score, const Row& v) {
    const double largest = std::fmax(largest_, score), shrink = std::exp(largest_ - largest),
                 p = std::exp(score - largest);
    largest_ = largest;
    sum_ = sum_ * shrink + p;
    for (std::size_t d = 0; d < y_.size(); ++d) y_[d] = y_[d] * shrink + p * v[d];
  }

  Row result() const {
    Row y = y_;
    for (double& value : y) value = sum_ > 0 ? value / sum_ : 0;
    return y;
  }

 private:
  double largest_ = -std::numeric_limits<double>::infinity(), sum_ = 0;
  Row y_;
};

// y of every query. The tables hold the pairs that the problem's predicate attends.
Matrix attend(const Problem&, const weft::TileTables&);
