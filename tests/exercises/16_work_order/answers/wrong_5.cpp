// SPDX-License-Identifier: MIT
// Wrong: std::sort may exchange tiles of equal work.
// Rejected with: change places
#include "tests/exercises/16_work_order/exercise.h"

#include <algorithm>
#include <numeric>

std::vector<int64_t> work_order(const std::vector<int64_t>& work) {
  std::vector<int64_t> order(work.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](int64_t a, int64_t b) { return work[a] > work[b]; });
  return order;
}
