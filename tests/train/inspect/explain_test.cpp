// SPDX-License-Identifier: MIT
// The steps of --explain, read as a person reads them.
#include "train/inspect/explain.h"

#include "tests/src/patterns/pattern_testing.h"
#include "tests/temp_dir.h"
#include "tests/train/inspect/lines.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace weft {
namespace {
// The keys of step 1, from its rows of characters.
std::set<int64_t> keys_drawn(const std::vector<std::string>& lines) {
  std::set<int64_t> keys;
  for (const std::string& line : lines) {
    if (line.starts_with("2. Runs")) break;
    if (line.size() < 10 || line.find_first_not_of(".#oO", 9) != std::string::npos ||
        line[6] < '0' || line[6] > '9')
      continue;
    const int64_t first = std::stoll(line.substr(0, 7));
    for (std::size_t at = 9; at < line.size(); ++at)
      if (line[at] == '#' || line[at] == 'O') keys.insert(first + static_cast<int64_t>(at) - 9);
  }
  return keys;
}

// The positions below the bits that are 1 in step 5: digits downwards.
std::set<int64_t> keys_of_words(const std::vector<std::string>& lines) {
  constexpr std::size_t kFirst = 10;  // column of bit 0
  std::set<int64_t> keys;
  for (std::size_t l = 0; l < lines.size(); ++l) {
    if (!lines[l].starts_with("    bits  ")) continue;
    for (std::size_t bit = kFirst; bit < lines[l].size(); ++bit) {
      if (lines[l][bit] != '1') continue;
      std::string digits;
      for (std::size_t below = l + 1;
           !lines[below].starts_with("    keys ") && !lines[below].starts_with("    no key");
           ++below)
        if (bit < lines[below].size() && lines[below][bit] != ' ') digits += lines[below][bit];
      keys.insert(std::stoll(digits));
    }
  }
  return keys;
}

std::string explained(const PatternSpec& spec, Lengths n, int64_t query, int edge = kSmallTile,
                      int head = 0, int heads = 1) {
  const auto pattern = make_pattern(spec, heads);
  const PatternView view = {*pattern, spec, heads, head, n};
  return explain_text(view, HeadTiles(view, 64, edge), query);
}

TEST(InspectExplain, EachStepNamesTheKeysOfThePredicate) {
  std::mt19937 random(21);
  for (int repeat = 0; repeat < 150; ++repeat) {
    const RandomCase c = random_case(random, true);
    const auto query = static_cast<int64_t>(random() % static_cast<uint32_t>(c.n));
    SCOPED_TRACE(str(c.text(), ", query ", query));
    const std::string text =
        explained(c.spec, c.n, query, repeat % 2 ? kTile : kSmallTile, c.head, c.heads);
    const std::vector<std::string> lines = lines_of(text);
    std::set<int64_t> expected;
    for (int64_t j = 0; j < c.n; ++j)
      if (c.pattern->attends(c.head, query, j)) expected.insert(j);
    EXPECT_EQ(keys_drawn(lines), expected) << text;
    // Keys of full tiles have no word to be read.
    const std::set<int64_t> read = keys_of_words(lines);
    EXPECT_TRUE(std::ranges::includes(expected, read)) << text;
    if (text.find("no word is read") == std::string::npos) {
      EXPECT_EQ(read, expected) << text;
    }
    EXPECT_CONTAINS(text, str(" and keeps ", expected.size(), "\n"));
    for (const std::string& line : lines) EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST(InspectExplain, AWordAndItsKeys) {
  const std::string text = explained({"fixed", 16, 4}, 64, 41);
  EXPECT_CONTAINS(text, R"(
3. Slot: query_order[41] = 41, so query 41 has slot 41 = 2 x 16 + 9
)");
  EXPECT_CONTAINS(text, R"(
  entry 5, key tile 0: masks[5 x 16 + 9] = 0x00ff, bit 0 first
    bits  1111111100000000
    key   1111223344446666
          2345890145670123
    keys 12-15, 28-31: 8 keys
)");
  EXPECT_CONTAINS(text, "\n  skipped key tiles: 1-4\n");
  EXPECT_CONTAINS(text,
                  "\n  12-15, 28-41: 18 keys\n  a kernel computes 48 scores for this query "
                  "and keeps 18\n");
}

TEST(InspectExplain, SaysWhatPatternsAreMadeOf) {
  PatternSpec merged{"merged"};
  merged.of = {{"local", 4}, {"strided", 4}};
  merged.length = 30;
  const std::string text = explained(merged, 40, 17);
  for (const char* part : {"\n  merged: ", "\n    local: the last `stride` positions",
                           "\n    strided: every `stride`-th", "\n  no key from 30 on\n",
                           "\nThe keys are split over 2 passes", "\nPass 2 of 2: "})
    EXPECT_CONTAINS(text, part);
  EXPECT_CONTAINS(explained(merged, 40, 35), "\n  none: y = 0 and lse = -inf for this query\n");
}

TEST(InspectExplain, LongSequencesAreRefusedInALine) {
  const auto error = [](Lengths n, int64_t query) -> std::string {
    try {
      check_explained(n, query);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error(kMostExplained, 0), "no error");
  EXPECT_EQ(error({4, kMostExplained + 1}, 0),
            "--explain shows every key of a query, of at most 512 positions, got 513: add --n 64, "
            "and --set or --attention for a short stride");
  EXPECT_EQ(error(64, 64), "--query must be between 0 and 63 (the length is 64), got 64");
  EXPECT_EQ(error(64, -1), "--query must be between 0 and 63 (the length is 64), got -1");
}
}  // namespace
}  // namespace weft
