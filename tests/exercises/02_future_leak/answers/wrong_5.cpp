// SPDX-License-Identifier: MIT
// Wrong: the mask leaks in every row, which is not the smallest change.
// Rejected with: has 31 pairs of the future, one is wanted
#include "tests/exercises/02_future_leak/exercise.h"

#include <cmath>
#include <cstddef>

bool leaky_attends(int64_t i, int64_t j) { return j <= i + 1; }

std::vector<int64_t> leaking_positions(const Model& model, const Tokens& tokens) { return {}; }
