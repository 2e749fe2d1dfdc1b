// SPDX-License-Identifier: MIT
// Pieces of a fixed size have a sum each, whoever computes it; these are added in order.
#include "tests/exercises/06_ordered_sum/exercise.h"

#include <algorithm>

float ordered_sum(const Numbers& x, Team& team) {
  constexpr int64_t kPiece = 1024;
  const int64_t pieces = (x.size() + kPiece - 1) / kPiece;
  std::vector<float> sums(pieces);
  team.run([&](int worker) {
    for (int64_t p = worker; p < pieces; p += team.size())
      for (int64_t i = p * kPiece; i < std::min((p + 1) * kPiece, x.size()); ++i) sums[p] += x[i];
  });
  float sum = 0;
  for (const float piece : sums) sum += piece;
  return sum;
}
