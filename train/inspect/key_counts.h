// SPDX-License-Identifier: MIT
// How many keys the queries of a head see, and how many a cache keeps for it.
#pragma once

#include "src/patterns/spec.h"

namespace weft {
struct KeyCounts {
  int64_t least = 0, most = 0;  // of a query
  // Rows of the cache in sampling (src/patterns/cache_rows.h); 0 when not causal.
  int64_t cache_rows = 0;
};

KeyCounts count_keys(const AttentionPattern&, int head, Lengths);
}  // namespace weft
