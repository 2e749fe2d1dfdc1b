// SPDX-License-Identifier: MIT
#include "src/config/names.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>

namespace weft {
namespace {
std::size_t edit_distance(const std::string& a, const std::string& b) {
  // distances from the first i letters of a to each prefix of b
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}
}  // namespace

std::string nearest_name(const std::string& word, const std::vector<std::string>& candidates) {
  constexpr std::size_t kBeginning = 3;  // letters that say what was meant
  const auto begins = [&](const std::string& c) {
    return word.size() >= kBeginning && c.starts_with(word);
  };
  const bool begun = std::ranges::any_of(candidates, begins);
  std::string best;
  std::size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    if (begun && !begins(candidate)) continue;
    const std::size_t distance = edit_distance(word, candidate);
    const bool near = begun || distance <= (std::max(word.size(), candidate.size()) + 2) / 3;
    if (near && (best.empty() || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string nearest = nearest_name(word, candidates);
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

std::string listed(const std::vector<std::string>& words, const char* last) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? last : ", ") + words[i];
  return text;
}
}  // namespace weft
