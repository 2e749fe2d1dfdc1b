// SPDX-License-Identifier: MIT
// What an attention pattern costs at a length, from its keys and its tile tables.
#pragma once

#include "src/patterns/packed_maps.h"

#include <cstddef>
#include <string>
#include <vector>

namespace weft {
struct AttentionTarget {
  int64_t qk_size = 64, v_size = 64;  // Dqk, Dv
  DType dtype = DType::f32;
  int compute_capability = 0;  // 0: a CPU
  bool documents = false;      // data.separator: maps of each sequence's own, reaches in bands
};

// Counts for the heads of one group, which see the same keys.
struct AttentionCounts {
  std::vector<int64_t> heads;
  std::string pattern;     // the parts that are computed one after the other
  PairCount pairs;         // of one layer and sequence, these heads
  std::vector<int> edges;  // of the tiles, by part
  // the kernel that runs each part: "cpu", or name_of(attention::Kernel)
  std::vector<std::string> form;
  std::size_t table_bytes = 0;  // of the tile tables, in the device's memory

  std::string edges_text() const;  // "64", "64 + 16"
  std::string form_text() const;   // "general", "hopper/band + hopper"
};

std::vector<AttentionCounts> count_attention(const AttentionPattern&, int heads, Lengths,
                                             const AttentionTarget&);

// Ascending numbers in short: "0-29", "0, 2 .. 28", "0, 1, 5".
std::string numbers_text(const std::vector<int64_t>& numbers);
std::string grouped_digits(int64_t value);  // "12,288"
// Rows of cells in columns two spaces apart; the first `left` columns are flush left, the others
// flush right.
std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t left);
}  // namespace weft
