// SPDX-License-Identifier: MIT
// The softmax of one query, one tile of keys after the other.
#pragma once

#include <limits>
#include <vector>

// What is known of a query after some tiles.
struct State {
  double largest = -std::numeric_limits<double>::infinity();  // of the scores so far
  double sum = 0;                                             // of exp(score - largest)
  std::vector<double> y;  // of exp(score - largest) times the row of v; begins as zeros
};

// Takes the keys of one more tile: their scores, -infinity where the key is not attended, and their
// rows of v.
void add_tile(State&, const std::vector<double>& scores, const std::vector<std::vector<double>>& v);

// The results after the last tile: y is replaced by the query's output, and the log-sum-exp of its
// scores is returned. Without an attended key they are 0 and -infinity.
double finish(State&);
