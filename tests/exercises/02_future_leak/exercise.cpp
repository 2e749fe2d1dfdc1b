// SPDX-License-Identifier: MIT
// The smallest change that leaks the future, and the test that sees it.
#include "tests/exercises/02_future_leak/exercise.h"

bool leaky_attends(int64_t i, int64_t j) {
  return j <= i;  // yours: one pair more
}

std::vector<int64_t> leaking_positions(const Model& model, const Tokens& tokens) {
  return {};  // yours
}
