// SPDX-License-Identifier: MIT
// Counts of keys and pairs, and tables of text.
#include "train/inspect_counts.h"

#include <algorithm>
#include <limits>

namespace weft {
namespace {

// Key j is held from position j to its last query.
std::int64_t most_held(const std::vector<std::int32_t>& last_query) {
  std::vector<std::int64_t> change(last_query.size() + 1, 0);
  for (std::size_t j = 0; j < last_query.size(); ++j) {
    if (last_query[j] < static_cast<std::int64_t>(j)) continue;
    ++change[j];
    --change[static_cast<std::size_t>(last_query[j]) + 1];
  }
  std::int64_t held = 0, most = 0;
  for (const std::int64_t c : change) most = std::max(most, held += c);
  return most;
}

}  // namespace

AttentionCounts count_attention(const AttentionPattern& pattern, int heads, std::int64_t n,
                                std::int64_t head_size) {
  AttentionCounts counts;
  counts.keys_min = std::numeric_limits<std::int64_t>::max();
  const PackedMaps maps(pattern, heads, n, head_size);
  for (int head = 0; head < heads; ++head) counts.pairs += maps.pairs(head);
  for (int group = 0; group < maps.groups(); ++group) {
    const auto& groups = maps.group_of_head();
    const auto head = static_cast<int>(std::find(groups.begin(), groups.end(), group) - groups.begin());
    std::vector<std::int32_t> last_query(static_cast<std::size_t>(n), -1), keys;
    for (std::int64_t i = 0; i < n; ++i) {
      keys.clear();
      pattern.keys_of(head, i, n, keys);
      for (const std::int32_t j : keys)
        last_query[static_cast<std::size_t>(j)] = static_cast<std::int32_t>(i);
      counts.keys_min = std::min(counts.keys_min, static_cast<std::int64_t>(keys.size()));
      counts.keys_max = std::max(counts.keys_max, static_cast<std::int64_t>(keys.size()));
    }
    counts.cache_rows = std::max(counts.cache_rows, most_held(last_query));
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
