// SPDX-License-Identifier: MIT
// The backward pass of attention in two kinds of tasks, a tile each. A task writes its own rows
// alone, so that tasks may run in any order and at once, and nothing is summed across them.
#pragma once

#include "kernels/attention/definition.h"
#include "kernels/attention/tile_tables.h"

#include <cstdint>

using weft::definition::Matrix;
using weft::definition::Row;

// What the forward pass keeps of one head, and the gradient of its output.
class Problem {
 public:
  Problem(weft::definition::Head, int64_t value_size);

  double scale() const { return head_.scale; }

  double score(int64_t i, int64_t j) const;  // scale q_i . k_j

  const Row& q(int64_t i) const { return head_.q.at(i); }

  const Row& k(int64_t j) const { return head_.k.at(j); }

  const Row& v(int64_t j) const { return head_.v.at(j); }

  const Row& dy(int64_t i) const { return dy_.at(i); }

  double lse(int64_t i) const { return out_.lse.at(i); }  // log sum_j exp(score(i, j))

  double delta(int64_t i) const { return weft::definition::dot(dy_.at(i), out_.y.at(i)); }

  // For the test.
  weft::definition::Gradients gradients() const {
    return weft::definition::backward(head_, out_, dy_);
  }

  int64_t computed() const { return computed_; }  // calls of score()

 private:
  weft::definition::Head head_;
  weft::definition::Output out_;
  Matrix dy_;
  mutable int64_t computed_ = 0;
};

// Stores the rows of dq that belong to the queries of a query tile. What stands there has no
// meaning.
void dq_of_tile(const Problem&, const weft::TileTables&, int64_t query_tile, Matrix& dq);

// Stores the rows of dk and dv that belong to the keys of a key tile, 0 for keys that nobody sees.
void dk_dv_of_tile(const Problem&, const weft::TileTables&, int64_t key_tile, Matrix& dk,
                   Matrix& dv);
