// SPDX-License-Identifier: MIT
// The backward pass of the softmax of attention.
#include "tests/exercises/04_score_gradient/exercise.h"

Row score_gradient(const Row& p, const Row& dp) {
  return Row(p.size());  // yours
}

double delta(const Row& y, const Row& dy) {
  return 0;  // yours
}
