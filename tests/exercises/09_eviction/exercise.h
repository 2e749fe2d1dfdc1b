// SPDX-License-Identifier: MIT
// When the key and value of a position may leave the cache of a decoder.
#pragma once

#include <cstdint>

// The last of the queries 0 .. n - 1 that reads key j, in a text of n positions. After this query
// the cache drops the key. Patterns are those of src/patterns/README.md, with l = stride.
int64_t last_reader_local(int64_t j, int64_t n, int64_t l);
int64_t last_reader_strided(int64_t j, int64_t n, int64_t l);
int64_t last_reader_fixed(int64_t j, int64_t n, int64_t l, int64_t c);
int64_t last_reader_local_and_strided(int64_t j, int64_t n, int64_t l);  // the union of both
