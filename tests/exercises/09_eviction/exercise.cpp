// SPDX-License-Identifier: MIT
// Rules of eviction: this one keeps everything until the end.
#include "tests/exercises/09_eviction/exercise.h"

int64_t last_reader_local(int64_t j, int64_t n, int64_t l) { return n - 1; }

int64_t last_reader_strided(int64_t j, int64_t n, int64_t l) { return n - 1; }

int64_t last_reader_fixed(int64_t j, int64_t n, int64_t l, int64_t c) { return n - 1; }

int64_t last_reader_local_and_strided(int64_t j, int64_t n, int64_t l) { return n - 1; }
