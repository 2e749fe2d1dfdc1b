// SPDX-License-Identifier: MIT
// Wrong: the order is turned around, which helps only where later positions have more work.
// Rejected with: random lists: random work
#include "tests/exercises/16_work_order/exercise.h"

std::vector<int64_t> work_order(const std::vector<int64_t>& work) {
  std::vector<int64_t> order;
  for (auto t = static_cast<int64_t>(work.size()); t > 0; --t) order.push_back(t - 1);
  return order;
}
