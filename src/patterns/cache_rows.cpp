// SPDX-License-Identifier: MIT
// Last readers: from the last query to the first, each key is met once. Rows: a linear scan.
#include "src/patterns/cache_rows.h"

#include "src/patterns/pattern.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

namespace weft {
namespace {
// Finds the keys j, j + step, ... that have no reader so far, skipping the others in almost no
// time.
class Unread {
 public:
  Unread(int64_t step, const std::vector<int32_t>& reader)
      : step_(step),
        reader_(reader) {
    for (std::size_t j = 0; j < reader.size(); ++j) next_.push_back(static_cast<int32_t>(j));
  }

  // The first at or after j; the number of positions or more when there is none.
  int64_t from(int64_t j) {
    const auto n = std::ssize(reader_);
    int64_t found = j;
    while (found < n) {
      int32_t& link = next_[found];
      if (link == found && reader_[found] < 0) break;
      if (link == found) link = static_cast<int32_t>(std::min(found + step_, n));
      found = link;
    }
    while (j < found) {  // path compression
      const int64_t after = next_[j];
      next_[j] = static_cast<int32_t>(found);
      j = after;
    }
    return found;
  }

 private:
  int64_t step_;
  const std::vector<int32_t>& reader_;
  // j: itself while unread, else a later one with nothing unread between
  std::vector<int32_t> next_;
};
}  // namespace

std::vector<int32_t> last_readers(const AttentionPattern& pattern, int head, int64_t n) {
  WEFT_CHECK(pattern.causal(), "sampling needs a causal pattern: with ", pattern.name(),
             " positions see later ones, which do not exist yet");
  WEFT_CHECK(n >= 1 && n <= kMaxPositions, "a cache is for 1 to ", kMaxPositions,
             " positions, got ", n);
  std::vector<int32_t> reader(n, -1);
  std::map<int64_t, Unread> unread;  // by step
  std::vector<KeyRun> runs;
  for (int64_t i = n - 1; i >= 0; --i) {
    runs.clear();
    pattern.key_runs(head, i, runs);
    for (const KeyRun& run : runs) {
      const int64_t size = run.size(), step = size > 1 ? run.step : 1;
      if (size == 0) continue;
      const int64_t last = run.begin + (size - 1) * run.step;
      WEFT_CHECK(run.begin >= 0 && last <= i, pattern.name(), ": query ", i, " sees key ", last,
                 ", which a causal pattern must not");
      Unread& keys = unread.try_emplace(step, step, reader).first->second;
      for (int64_t j = keys.from(run.begin); j <= last; j = keys.from(j))
        reader[j] = static_cast<int32_t>(i);
    }
  }
  return reader;
}

CacheRows cache_rows(const AttentionPattern& pattern, int head, int64_t n) {
  const std::vector<int32_t> reader = last_readers(pattern, head, n);
  // Positions with one last reader, as chains.
  std::vector<int32_t> first(reader.size(), -1), after(reader.size(), -1), free;
  for (std::size_t j = 0; j < reader.size(); ++j) {
    if (reader[j] < 0) continue;
    int32_t& chain = first[reader[j]];
    after[j] = chain;
    chain = static_cast<int32_t>(j);
  }
  CacheRows result;
  result.row_of.assign(reader.size(), -1);
  for (std::size_t t = 0; t < reader.size(); ++t) {
    if (t > 0)
      for (int32_t j = first[t - 1]; j >= 0; j = after[j]) free.push_back(result.row_of[j]);
    if (reader[t] < 0) continue;
    if (free.empty()) {
      result.row_of[t] = static_cast<int32_t>(result.rows++);
    } else {
      result.row_of[t] = free.back();
      free.pop_back();
    }
  }
  return result;
}
}  // namespace weft
