// SPDX-License-Identifier: MIT
// Where sampling keeps the keys and values of one head: which row of the cache each position has. A row is
// taken when its position comes and free again after the last query that reads it, so that `local` lives in a
// ring of l rows and `fixed` in the open block and the summaries. It follows from the pattern alone.
#pragma once

#include "src/patterns/spec.h"

namespace weft {

// For each of the first n positions the last query that reads it, -1: none. Time grows with the number of
// runs. Throws Error unless the pattern is causal.
std::vector<std::int32_t> last_readers(const AttentionPattern&, int head, std::int64_t n);

struct CacheRows {
  std::vector<std::int32_t> row_of;  // position -> row; -1: no query reads it
  std::int64_t rows = 0;             // the most that are held at once: no assignment needs fewer
};
// For a text of n positions.
CacheRows cache_rows(const AttentionPattern&, int head, std::int64_t n);

}  // namespace weft
