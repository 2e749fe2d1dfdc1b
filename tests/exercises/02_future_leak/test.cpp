// SPDX-License-Identifier: MIT
// The test of a test: models that leak in different ways, and models that do not.
#include "kernels/attention/definition.h"
#include "tests/exercises/02_future_leak/exercise.h"
#include "tests/exercises/check.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

namespace {
using exercise::expect;
using weft::definition::Head;
using weft::definition::Matrix;

constexpr int64_t kTokens = 32;

Tokens some_tokens() {
  std::mt19937 random(5);
  Tokens tokens(kTokens);
  for (int& token : tokens) token = static_cast<int>(random() % kVocabulary);
  return tokens;
}

// One head of attention over embedded tokens.
Logits attention(const Tokens& tokens, std::function<bool(std::size_t, std::size_t)> attends) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  Matrix embedding(kVocabulary, {0, 0, 0, 0}), x;
  for (auto& row : embedding)
    for (double& value : row) value = normal(random);
  for (const int token : tokens) x.push_back(embedding[token]);
  return weft::definition::forward(Head{x, x, x, 0.5, std::move(attends)}).y;
}

bool causal(std::size_t i, std::size_t j) { return j <= i; }

struct Case {
  std::string what;
  Model model;
  std::vector<int64_t> leaks;
};

std::vector<int64_t> all_but_last() {
  std::vector<int64_t> positions;
  for (int64_t i = 0; i + 1 < kTokens; ++i) positions.push_back(i);
  return positions;
}

std::vector<Case> cases() {
  std::vector<Case> list;
  list.push_back({"causal attention", [](const Tokens& t) { return attention(t, causal); }, {}});
  list.push_back({"a mask that is one off",
                  [](const Tokens& t) {
                    return attention(t, [](std::size_t i, std::size_t j) { return j <= i + 1; });
                  },
                  all_but_last()});
  list.push_back({"a mask that is one off in the last row of a tile of 8",
                  [](const Tokens& t) {
                    return attention(t, [](std::size_t i, std::size_t j) {
                      return j <= i + (i % 8 == 7 ? 1 : 0);
                    });
                  },
                  {7, 15, 23}});
  list.push_back(
      {"whole blocks of 4",
       [](const Tokens& t) {
         return attention(t, [](std::size_t i, std::size_t j) { return j / 4 <= i / 4; });
       },
       {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 16, 17, 18, 20, 21, 22, 24, 25, 26, 28, 29, 30}});
  list.push_back({"a factor that is the same for all positions and depends on all tokens",
                  [](const Tokens& t) {
                    Logits y = attention(t, causal);
                    double sum = 0;
                    for (const int token : t) sum += token;
                    for (auto& row : y)
                      for (double& value : row) value *= 1 + 1e-9 * sum;
                    return y;
                  },
                  all_but_last()});
  list.push_back({"position 10 asks whether token 12 is a 15",
                  [](const Tokens& t) {
                    Logits y = attention(t, causal);
                    if (t[12] == 15) y[10][0] += 1;
                    return y;
                  },
                  {10}});
  return list;
}

std::string list_text(const std::vector<int64_t>& positions) {
  std::string text = "{";
  for (const int64_t i : positions) text += (text.size() > 1 ? ", " : "") + std::to_string(i);
  return text + "}";
}

void expect_leaks(const Case& c) {
  const std::vector<int64_t> got = leaking_positions(c.model, some_tokens());
  for (const int64_t i : got)
    expect(std::ranges::count(c.leaks, i) > 0, c.what, ": position ", i,
           " reads nothing later, but you say that it does");
  for (const int64_t i : c.leaks)
    expect(std::ranges::count(got, i) > 0, c.what, ": the leak of position ", i,
           " is not found; those that are: ", list_text(got));
  expect(got == c.leaks, c.what, ": expected ", list_text(c.leaks), ", got ", list_text(got));
}

void leaky_attends_has_one_pair_more() {
  int64_t more = 0;
  for (int64_t i = 0; i < kTokens; ++i)
    for (int64_t j = 0; j < kTokens; ++j) {
      if (j <= i) expect(leaky_attends(i, j), "query ", i, " no longer sees key ", j);
      if (j > i && leaky_attends(i, j)) ++more;
    }
  expect(more == 1, "leaky_attends() has ", more, " pairs of the future, one is wanted");
}

void every_leak_is_found_and_no_other() {
  for (const Case& c : cases()) expect_leaks(c);
}

void your_own_leak_is_found() {
  Case own{"leaky_attends()",
           [](const Tokens& t) {
             return attention(t, [](std::size_t i, std::size_t j) {
               return leaky_attends(static_cast<int64_t>(i), static_cast<int64_t>(j));
             });
           },
           {}};
  for (int64_t i = 0; i < kTokens; ++i)
    for (int64_t j = i + 1; j < kTokens; ++j)
      if (leaky_attends(i, j)) own.leaks.push_back(i);
  expect_leaks(own);
}
}  // namespace

int main() {
  return exercise::run({
      {"leaky_attends() has one pair more than a causal pattern", leaky_attends_has_one_pair_more},
      {"leaking_positions() finds every leak, and nothing else", every_leak_is_found_and_no_other},
      {"leaking_positions() finds your own leak", your_own_leak_is_found},
  });
}
