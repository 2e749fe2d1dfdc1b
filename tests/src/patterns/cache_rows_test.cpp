// SPDX-License-Identifier: MIT
// Rows of the cache: what a query reads is still there, and no assignment needs fewer rows.
#include "src/patterns/cache_rows.h"

#include "src/config/read_config.h"
#include "src/patterns/pattern.h"
#include "tests/src/patterns/drawings.h"
#include "tests/src/patterns/pattern_testing.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

namespace weft {
namespace {
// Plays sampling: each position is written to its row, each query looks for its keys.
void check_rows(const AttentionPattern& pattern, int head, int64_t n) {
  const CacheRows rows = cache_rows(pattern, head, n);
  const std::vector<int32_t> readers = last_readers(pattern, head, n);
  ASSERT_EQ(static_cast<int64_t>(rows.row_of.size()), n);
  std::vector<int64_t> last(static_cast<std::size_t>(n), -1), held(last);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j)
      if (pattern.attends(head, i, j)) last[j] = i;
  int64_t most = 0;
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_EQ(readers[i], last[i]) << "key " << i;
    const int64_t row = rows.row_of[i];
    ASSERT_EQ(row < 0, last[i] < 0) << "position " << i;
    ASSERT_LT(row, rows.rows);
    if (row >= 0) held[row] = i;
    for (int64_t j = 0; j <= i; ++j) {
      if (!pattern.attends(head, i, j)) continue;
      ASSERT_EQ(held[rows.row_of[j]], j) << "query " << i << ", key " << j;
    }
    int64_t needed = 0;
    for (int64_t j = 0; j <= i; ++j) needed += last[j] >= i;
    most = std::max(most, needed);
  }
  EXPECT_EQ(rows.rows, most);
}

TEST(CacheRows, OfRandomPatterns) {
  std::mt19937 random(11);
  for (int repeat = 0; repeat < 200; ++repeat) {
    const RandomCase c = random_case(random);
    if (!c.pattern->causal()) continue;
    SCOPED_TRACE(c.text());
    check_rows(*c.pattern, c.head, c.n);
  }
}

TEST(CacheRows, OfEveryKind) {
  for (const Drawing& d : drawings()) {
    const auto pattern = make_pattern(d.spec, d.heads);
    if (!pattern->causal()) continue;
    const int64_t most = pattern->lengths().keys;
    for (const int64_t n : {1, 2, 5, 6, 7, 12, 31, 64, 97}) {
      if (most > 0 && n > most) continue;
      SCOPED_TRACE(str(pattern->name(), ", head ", d.head, ", n ", n));
      check_rows(*pattern, d.head, n);
    }
  }
}

TEST(CacheRows, LocalIsARing) {
  const CacheRows rows = cache_rows(*make_pattern({"local", 5}, 1), 0, 23);
  EXPECT_EQ(rows.rows, 5);
  for (std::size_t t = 5; t < 23; ++t) EXPECT_EQ(rows.row_of[t], rows.row_of[t - 5]) << t;
}

TEST(CacheRows, OfKnownPatterns) {
  const auto rows = [](const PatternSpec& spec) {
    return cache_rows(*make_pattern(spec, 4), 0, 1024).rows;
  };
  EXPECT_EQ(rows({"all"}), 1024);
  EXPECT_EQ(rows({"local", 128}), 128);
  EXPECT_EQ(rows({"strided", 128}), 1024 - 127);  // a column is done when its last position is
  EXPECT_EQ(rows({"fixed", 128, 32}), 7 * 32 + 128);
}

// Every query sees the even positions up to its own, each by runs of another step.
class Even : public AttentionPattern {
 public:
  std::string name() const override { return "even"; }

  bool attends(int, int64_t i, int64_t j) const override { return j <= i && j % 2 == 0; }

  void key_runs(int, int64_t i, std::vector<KeyRun>& runs) const override {
    const int64_t step = 2 * (1 + i % 3);
    for (int64_t first = 0; first < step; first += 2) runs.push_back({first, i + 1, step});
  }
};

TEST(CacheRows, PositionsThatNobodyReadsAreNotKept) {
  check_rows(Even(), 0, 41);
  const CacheRows rows = cache_rows(Even(), 0, 41);
  EXPECT_EQ(rows.rows, 21);
  EXPECT_EQ(rows.row_of[7], -1);
}

// Says that it is causal, and is not.
class Liar : public Even {
 public:
  void key_runs(int, int64_t i, std::vector<KeyRun>& runs) const override {
    runs.push_back({0, i + 2});
  }
};

TEST(CacheRows, RefusesTheFuture) {
  EXPECT_CONTAINS(error_of([] { cache_rows(Liar(), 0, 9); }), "even: query 8 sees key 9");
  EXPECT_CONTAINS(
      error_of([] {
        cache_rows(*make_pattern(parse_pattern("{kind: all, causal: false}", "test"), 1), 0, 9);
      }),
      "sampling needs a causal pattern");
  EXPECT_CONTAINS(error_of([] { cache_rows(Even(), 0, 0); }), "1 to ");
}
}  // namespace
}  // namespace weft
