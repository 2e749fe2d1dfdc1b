// SPDX-License-Identifier: MIT
// Counts of keys and pairs from tile tables, and tables of text.
#include "train/inspect_counts.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace weft {
namespace {

// Number of keys of each query position.
std::vector<std::int64_t> keys_per_query(const TileTables& t, std::int64_t n) {
  std::vector<std::int64_t> keys(static_cast<std::size_t>(n), 0);
  for (std::int32_t tile = 0; tile < t.query_tiles(); ++tile)
    for (int r = 0; r < kTile; ++r) {
      const std::int32_t query = t.query_order[tile * kTile + r];
      if (query < 0) continue;
      for (std::int32_t entry = t.row_start[tile]; entry < t.row_start[tile + 1]; ++entry)
        keys[query] += t.row_mask[entry] < 0
                           ? kTile
                           : std::popcount(t.masks[t.row_mask[entry] * std::size_t{kTile} + r]);
    }
  return keys;
}

// The last query that reads each key position; -1: none.
std::vector<std::int32_t> last_query_of_keys(const TileTables& t, std::int64_t n) {
  std::vector<std::int32_t> latest(static_cast<std::size_t>(t.query_tiles()));  // the last query of each tile
  for (std::size_t tile = 0; tile < latest.size(); ++tile)
    latest[tile] =
        *std::max_element(t.query_order.begin() + tile * kTile, t.query_order.begin() + (tile + 1) * kTile);
  std::vector<std::int32_t> last(static_cast<std::size_t>(n), -1);
  for (std::int32_t tile = 0; tile < t.key_tiles(); ++tile)
    for (int r = 0; r < kTile; ++r) {
      const std::int32_t key = t.key_order[tile * kTile + r];
      if (key < 0) continue;
      for (std::int32_t entry = t.col_start[tile]; entry < t.col_start[tile + 1]; ++entry) {
        const std::int32_t queries = t.col_tile[entry];
        if (latest[queries] <= last[key]) continue;
        if (t.col_mask[entry] < 0)
          last[key] = latest[queries];
        else
          for (std::uint64_t bits = t.masks_transposed[t.col_mask[entry] * std::size_t{kTile} + r]; bits != 0;
               bits &= bits - 1)
            last[key] = std::max(last[key], t.query_order[queries * kTile + std::countr_zero(bits)]);
      }
    }
  return last;
}

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

AttentionCounts count_attention(const AttentionPattern& pattern, int heads, std::int64_t n) {
  AttentionCounts counts;
  counts.keys_min = std::numeric_limits<std::int64_t>::max();
  for (int group = 0; group < pattern.groups(heads); ++group) {
    std::vector<int> members;
    for (int head = 0; head < heads; ++head)
      if (pattern.group(head) == group) members.push_back(head);
    const TileTables tables = build_tile_tables(pattern, members.at(0), n);
    counts.pairs.needed += tables.pairs.needed * static_cast<std::int64_t>(members.size());
    counts.pairs.executed += tables.pairs.executed * static_cast<std::int64_t>(members.size());
    const std::vector<std::int64_t> keys = keys_per_query(tables, n);
    const auto [least, most] = std::minmax_element(keys.begin(), keys.end());
    counts.keys_min = std::min(counts.keys_min, *least);
    counts.keys_max = std::max(counts.keys_max, *most);
    counts.cache_rows = std::max(counts.cache_rows, most_held(last_query_of_keys(tables, n)));
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
