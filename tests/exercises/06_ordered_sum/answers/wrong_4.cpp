// SPDX-License-Identifier: MIT
// Wrong: whole pieces alone: the numbers after the last one are lost.
// Rejected with: was read 0 times
#include "tests/exercises/06_ordered_sum/exercise.h"

#include <cstddef>

float ordered_sum(const Numbers& x, Team& team) {
  constexpr int64_t kPiece = 1024;
  std::vector<float> sums(x.size() / kPiece);
  team.run([&](int worker) {
    for (auto p = static_cast<std::size_t>(worker); p < sums.size(); p += team.size())
      for (int64_t i = 0; i < kPiece; ++i) sums[p] += x[static_cast<int64_t>(p) * kPiece + i];
  });
  float sum = 0;
  for (const float piece : sums) sum += piece;
  return sum;
}
