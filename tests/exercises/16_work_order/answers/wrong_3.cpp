// SPDX-License-Identifier: MIT
// Wrong: large and small tiles in turn: the last pairs are as large as the first.
// Rejected with: processors takes
#include "tests/exercises/16_work_order/exercise.h"

#include <algorithm>
#include <numeric>

std::vector<int64_t> work_order(const std::vector<int64_t>& work) {
  std::vector<int64_t> sorted(work.size()), order;
  std::iota(sorted.begin(), sorted.end(), 0);
  std::ranges::stable_sort(sorted, [&](int64_t a, int64_t b) { return work[a] > work[b]; });
  for (std::size_t low = 0, high = sorted.size(); low < high;) {
    order.push_back(sorted[low++]);
    if (low < high) order.push_back(sorted[--high]);
  }
  return order;
}
