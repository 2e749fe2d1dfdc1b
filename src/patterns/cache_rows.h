// SPDX-License-Identifier: MIT
// The cache row of each position of one head, for sampling. A row is free again after the last
// query that reads it: `local` needs a ring of l rows, `fixed` the open block and the summaries.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {
class AttentionPattern;

// For each of the first n positions the last query that reads it; -1: none does. Throws Error
// unless the pattern is causal.
std::vector<int32_t> last_readers(const AttentionPattern&, int head, int64_t n);

struct CacheRows {
  std::vector<int32_t> row_of;  // position -> row; -1: no query reads it
  int64_t rows = 0;             // the most that are held at once: no assignment needs fewer
};

// For a text of n positions.
CacheRows cache_rows(const AttentionPattern&, int head, int64_t n);
}  // namespace weft
