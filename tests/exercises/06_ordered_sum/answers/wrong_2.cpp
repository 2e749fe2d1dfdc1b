// SPDX-License-Identifier: MIT
// Wrong: pieces of a fixed size, added as they arrive: what an atomic addition of each piece does.
// Rejected with: whose workers come in another order
#include "tests/exercises/06_ordered_sum/exercise.h"

#include <algorithm>

float ordered_sum(const Numbers& x, Team& team) {
  constexpr int64_t kPiece = 1024;
  float sum = 0;
  team.run([&](int worker) {
    for (int64_t first = worker * kPiece; first < x.size(); first += team.size() * kPiece) {
      float piece = 0;
      for (int64_t i = first; i < std::min(first + kPiece, x.size()); ++i) piece += x[i];
      sum += piece;
    }
  });
  return sum;
}
