// SPDX-License-Identifier: MIT
// A second definition of attention by content: labels, choices and counts of pairs in plain loops.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "src/ops/content.h"
#include "tests/src/engine_testing.h"

namespace weft::content_testing {

using Counts = std::vector<std::vector<int>>;  // [query][key]: how often it is seen

// Of labels by position: the last `window` members before a query, in each round; the own position otherwise.
inline Counts counts_of_labels(const std::vector<std::vector<int>>& rounds, std::size_t window,
                               const std::vector<int>& documents = {}) {
  const std::size_t n = rounds[0].size();
  Counts counts(n, std::vector<int>(n, 0));
  for (std::size_t i = 0; i < n; ++i) {
    int sum = 0;
    for (const std::vector<int>& label : rounds) {
      std::size_t seen = 0;
      for (std::size_t j = i; j-- > 0 && seen < window;)
        if (label[j] == label[i] && (documents.empty() || documents[j] == documents[i]))
          ++seen, ++counts[i][j], ++sum;
    }
    if (sum == 0) counts[i][i] = 1;
  }
  return counts;
}

// rows[i]: a vector of D floats. MoBA's gate, of the first query of each block.
inline Counts counts_of_blocks(const std::vector<std::vector<float>>& q,
                               const std::vector<std::vector<float>>& k, std::size_t block,
                               std::size_t most) {
  const std::size_t n = q.size();
  Counts counts(n, std::vector<int>(n, 0));
  for (std::size_t t = 0; t * block < n; ++t) {
    std::vector<std::pair<double, std::size_t>> gates;
    for (std::size_t g = 0; g < t; ++g) {
      double gate = 0;
      for (std::size_t j = g * block; j < (g + 1) * block; ++j)
        for (std::size_t d = 0; d < q[0].size(); ++d) gate -= double{q[t * block][d]} * k[j][d];
      gates.emplace_back(gate, g);
    }
    std::sort(gates.begin(), gates.end());
    gates.resize(std::min(gates.size(), most - 1));
    gates.emplace_back(0, t);
    for (std::size_t i = t * block; i < std::min(n, (t + 1) * block); ++i)
      for (const auto& [gate, g] : gates)
        for (std::size_t j = g * block; j < (g + 1) * block && j <= i; ++j) counts[i][j] = 1;
  }
  return counts;
}

// What the maps of (b, h) say, as the CPU reads them. With labels, who sees nothing is told by no map.
inline Counts counts_in(const AttentionMaps& maps, std::int64_t b, std::int64_t h, std::size_t n, bool own) {
  Counts counts(n, std::vector<int>(n, 0)), transposed = counts;
  for (int p = 0; p < maps.passes; ++p) {
    const TileMap& m = maps.pass[p].maps[maps.map_of(b, h)];
    const auto see = [&](Counts& to, int tile, int other, int mask, const std::uint64_t* words, bool rows) {
      for (int r = 0; r < kTile && mask != kSkip; ++r)
        for (int c = 0; c < kTile; ++c) {
          if (mask >= 0 && !(words[std::int64_t{mask} * kTile + r] >> c & 1)) continue;
          const int i = (rows ? m.query_order : m.key_order)[tile * kTile + r],
                    j = (rows ? m.key_order : m.query_order)[other * kTile + c];
          ASSERT_TRUE(i >= 0 && j >= 0);
          ++to[static_cast<std::size_t>(rows ? i : j)][static_cast<std::size_t>(rows ? j : i)];
        }
    };
    for (int t = 0; t < m.query_tiles; ++t)
      for (int e = m.row_start[t]; e < m.row_start[t + 1]; ++e) {
        see(counts, t, m.row_tile[e], m.row_mask[e], m.masks, true);
        EXPECT_TRUE(e == m.row_start[t] || m.row_tile[e - 1] < m.row_tile[e]);
      }
    for (int t = 0; t < m.key_tiles; ++t)
      for (int e = m.col_start[t]; e < m.col_start[t + 1]; ++e) {
        see(transposed, t, m.col_tile[e], m.col_mask[e], m.masks_transposed, false);
        EXPECT_TRUE(e == m.col_start[t] || m.col_tile[e - 1] < m.col_tile[e]);
      }
  }
  EXPECT_EQ(counts, transposed);
  for (std::size_t i = 0; own && i < n; ++i)
    if (std::count(counts[i].begin(), counts[i].end(), 0) == static_cast<std::ptrdiff_t>(n)) counts[i][i] = 1;
  return counts;
}

}  // namespace weft::content_testing
