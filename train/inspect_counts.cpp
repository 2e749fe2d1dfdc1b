// SPDX-License-Identifier: MIT
// Counts of keys and pairs, and tables of text.
#include "train/inspect_counts.h"

#include <algorithm>
#include <limits>

#include "src/cache_rows.h"

namespace weft {

AttentionCounts count_attention(const AttentionPattern& pattern, int heads, std::int64_t n,
                                std::int64_t head_size) {
  AttentionCounts counts;
  counts.keys_min = std::numeric_limits<std::int64_t>::max();
  const PackedMaps maps(pattern, heads, n, head_size);
  for (int head = 0; head < heads; ++head) counts.pairs += maps.pairs(head);
  std::vector<KeyRun> runs;
  for (int group = 0; group < maps.groups(); ++group) {
    const auto& groups = maps.group_of_head();
    const auto head = static_cast<int>(std::find(groups.begin(), groups.end(), group) - groups.begin());
    for (std::int64_t i = 0; i < n; ++i) {
      runs.clear();
      pattern.key_runs(head, i, runs);
      const std::int64_t keys = keys_in(runs, n);
      counts.keys_min = std::min(counts.keys_min, keys);
      counts.keys_max = std::max(counts.keys_max, keys);
    }
    if (pattern.causal()) counts.cache_rows = std::max(counts.cache_rows, cache_rows(pattern, head, n).rows);
  }
  counts.keys_mean = static_cast<double>(counts.pairs.needed) / static_cast<double>(n * heads);
  return counts;
}

std::string numbers_text(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (std::size_t k = 0; k < numbers.size();) {
    std::size_t end = k + 1;  // numbers k .. end - 1 have equal distances
    while (end < numbers.size() && numbers[end] - numbers[end - 1] == numbers[k + 1] - numbers[k]) ++end;
    const std::int64_t step = end > k + 1 ? numbers[k + 1] - numbers[k] : 0;
    text += text.empty() ? "" : ", ";
    if (end - k >= 3) {
      text += step == 1 ? str(numbers[k], "-", numbers[end - 1])
                        : str(numbers[k], ", ", numbers[k + 1], " .. ", numbers[end - 1]);
      k = end;
    } else {
      text += std::to_string(numbers[k++]);
    }
  }
  return text;
}

std::string grouped_digits(std::int64_t value) {
  std::string text = std::to_string(value);
  for (std::int64_t at = static_cast<std::int64_t>(text.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3)
    text.insert(static_cast<std::size_t>(at), 1, ',');
  return text;
}

std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t left) {
  std::vector<std::size_t> width;
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c == width.size()) width.push_back(0);
      width[c] = std::max(width[c], row[c].size());
    }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string padding(width[c] - row[c].size(), ' ');
      line += "  " + (c < left ? row[c] + padding : padding + row[c]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace weft
