// SPDX-License-Identifier: MIT
// Wrong: the text may end before the window does.
// Rejected with: your last reader of key 0 is query 3; there are queries 0 to 0
#include "tests/exercises/09_eviction/exercise.h"

#include <algorithm>

int64_t last_reader_local(int64_t j, int64_t n, int64_t l) { return j + l - 1; }

int64_t last_reader_strided(int64_t j, int64_t n, int64_t l) { return n - 1 - (n - 1 - j) % l; }

int64_t last_reader_fixed(int64_t j, int64_t n, int64_t l, int64_t c) {
  if (j % l >= l - c) return n - 1;
  return std::min(j / l * l + l - 1, n - 1);
}

int64_t last_reader_local_and_strided(int64_t j, int64_t n, int64_t l) {
  return std::max(last_reader_local(j, n, l), last_reader_strided(j, n, l));
}
