// SPDX-License-Identifier: MIT
// What an attention pattern costs at a length, from its keys and its tile tables.
#pragma once

#include <string>
#include <vector>

#include "src/attention_maps.h"

namespace weft {

struct AttentionCounts {
  PairCount pairs;                          // of one layer and sequence: all heads
  std::int64_t keys_min = 0, keys_max = 0;  // of a query, any head
  double keys_mean = 0;
  // Keys (and values) of one head that sampling has to keep at once, at most (src/cache_rows.h); 0 when the
  // pattern is not causal.
  std::int64_t cache_rows = 0;
};
// `head_size`: the larger of Dqk and Dv.
AttentionCounts count_attention(const AttentionPattern&, int heads, std::int64_t n, std::int64_t head_size);

// Ascending numbers in short: "0-29", "0, 2 .. 28", "0, 1, 5".
std::string numbers_text(const std::vector<std::int64_t>& numbers);
// "12,288"
std::string grouped_digits(std::int64_t value);
// Rows of cells in columns two spaces apart; the first `left` columns are flush left, the others flush right.
std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t left);

}  // namespace weft
