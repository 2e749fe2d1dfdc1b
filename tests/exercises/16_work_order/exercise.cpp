// SPDX-License-Identifier: MIT
// An order of tiles that keeps all processors busy.
#include "tests/exercises/16_work_order/exercise.h"

#include <numeric>

std::vector<int64_t> work_order(const std::vector<int64_t>& work) {
  std::vector<int64_t> order(work.size());
  std::iota(order.begin(), order.end(), 0);  // yours: in the order of positions
  return order;
}
