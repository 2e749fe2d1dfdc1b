// SPDX-License-Identifier: MIT
// The most work first: what is taken last is small, so that nobody waits long for it.
#include "tests/exercises/16_work_order/exercise.h"

#include <algorithm>
#include <numeric>

std::vector<int64_t> work_order(const std::vector<int64_t>& work) {
  std::vector<int64_t> order(work.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return work[a] > work[b]; });
  return order;
}
