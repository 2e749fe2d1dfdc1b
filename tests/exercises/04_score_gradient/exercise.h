// SPDX-License-Identifier: MIT
// The gradient of the scores of one query, and the number that makes it cheap.
#pragma once

#include <vector>

using Row = std::vector<double>;

// p: the weights of a query, softmax of its scores s; dp: the gradient of the loss with respect to
// p. Returns that with respect to s.
Row score_gradient(const Row& p, const Row& dp);

// sum_j p_j dp_j of that query, without p and dp: from its output y = sum_j p_j v_j and the
// gradient dy of y.
double delta(const Row& y, const Row& dy);
