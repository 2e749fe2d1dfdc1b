// SPDX-License-Identifier: MIT
// Wrong: the work is sorted, not the tiles: numbers of tiles are lost.
// Rejected with: is not taken exactly once
#include "tests/exercises/16_work_order/exercise.h"

#include <algorithm>
#include <functional>

std::vector<int64_t> work_order(const std::vector<int64_t>& work) {
  std::vector<int64_t> order = work;
  std::ranges::sort(order, std::greater<>());
  return order;
}
