// SPDX-License-Identifier: MIT
// A decoder's cache, position by position: no key is missing, and no row is held in vain.
// Needs: weft
#include "src/patterns/cache_rows.h"
#include "src/patterns/pattern.h"
#include "tests/exercises/09_eviction/exercise.h"
#include "tests/exercises/check.h"

#include <algorithm>
#include <memory>
#include <string>

namespace {
using exercise::expect;
using weft::PatternSpec;

// Decodes n positions with a cache that drops keys by the rule.
template <class Rule>
void decode(const PatternSpec& spec, int64_t n, const Rule& last_reader) {
  const std::unique_ptr<weft::AttentionPattern> pattern = weft::make_pattern(spec, 1);
  const std::string what = pattern->name() + ", a text of " + std::to_string(n) + ": ";
  for (int64_t j = 0; j < n; ++j)
    expect(last_reader(j, n) >= j && last_reader(j, n) < n, what, "your last reader of key ", j,
           " is query ", last_reader(j, n), "; there are queries ", j, " to ", n - 1,
           " from the key on");
  std::vector<int64_t> dropped_after(n, -1);  // -1: held, or still to come
  int64_t held = 0, most = 0;
  std::vector<int32_t> keys;
  for (int64_t t = 0; t < n; ++t) {
    most = std::max(most, ++held);
    keys.clear();
    pattern->keys_of(0, t, n, keys);
    for (const int32_t j : keys)
      expect(dropped_after[j] < 0, what, "query ", t, " reads key ", j,
             ", which was dropped after query ", dropped_after[j]);
    for (int64_t j = 0; j <= t; ++j) {
      if (dropped_after[j] >= 0 || last_reader(j, n) > t) continue;
      dropped_after[j] = t;
      --held;
    }
  }
  const int64_t least = weft::cache_rows(*pattern, 0, n).rows;
  expect(most <= least, what, "the cache holds ", most, " keys at once, ", least,
         " are enough; the first key that is kept too long is ", [&] {
           const std::vector<int32_t> readers = weft::last_readers(*pattern, 0, n);
           for (int64_t j = 0; j < n; ++j)
             if (last_reader(j, n) > readers[j]) return j;
           return n;
         }());
}

void local_keeps_a_window() {
  for (const int64_t l : {1, 4, 7})
    for (const int64_t n : {1, 20, 64})
      decode({.kind = "local", .stride = l}, n,
             [l](int64_t j, int64_t length) { return last_reader_local(j, length, l); });
}

void strided_keeps_a_row() {
  for (const int64_t l : {1, 4, 7})
    for (const int64_t n : {1, 20, 64})
      decode({.kind = "strided", .stride = l}, n,
             [l](int64_t j, int64_t length) { return last_reader_strided(j, length, l); });
}

void fixed_keeps_summaries_and_a_block() {
  for (const int64_t c : {1, 3, 8})
    for (const int64_t n : {1, 21, 64})
      decode({.kind = "fixed", .stride = 8, .c = c}, n,
             [c](int64_t j, int64_t length) { return last_reader_fixed(j, length, 8, c); });
}

void a_union_keeps_what_either_reads() {
  PatternSpec both{.kind = "merged"};
  for (const int64_t l : {1, 4, 7}) {
    both.of = {{.kind = "local", .stride = l}, {.kind = "strided", .stride = l}};
    for (const int64_t n : {1, 20, 64})
      decode(both, n, [l](int64_t j, int64_t length) {
        return last_reader_local_and_strided(j, length, l);
      });
  }
}
}  // namespace

int main() {
  return exercise::run({
      {"local keeps a window", local_keeps_a_window},
      {"strided lets go at the end of its column", strided_keeps_a_row},
      {"fixed keeps summaries and a block", fixed_keeps_summaries_and_a_block},
      {"a union keeps what either part reads", a_union_keeps_what_either_reads},
  });
}
