// SPDX-License-Identifier: MIT
#include "train/inspect/key_counts.h"

#include "src/patterns/cache_rows.h"
#include "src/patterns/pattern.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace weft {
KeyCounts count_keys(const AttentionPattern& pattern, int head, Lengths n) {
  KeyCounts counts{.least = std::numeric_limits<int64_t>::max()};
  std::vector<KeyRun> runs;
  for (int64_t i = 0; i < n.queries; ++i) {
    runs.clear();
    pattern.key_runs(head, i, runs);
    int64_t keys = keys_in(runs, n.keys);
    if (const int64_t most = pattern.most_keys(head)) keys = std::min(keys, most);
    counts.least = std::min(counts.least, keys);
    counts.most = std::max(counts.most, keys);
  }
  if (pattern.causal() && n.queries == n.keys)
    counts.cache_rows = cache_rows(pattern, head, n.keys).rows;
  return counts;
}
}  // namespace weft
