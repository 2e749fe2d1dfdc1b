// SPDX-License-Identifier: MIT
// A second definition of attention by content: labels, choices and counts of pairs in plain loops.
#pragma once

#include "kernels/layers/pointwise.h"
#include "src/content/content.h"
#include "tests/src/engine_testing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace weft::content_testing {
using Counts = std::vector<std::vector<int>>;  // [query][key]: how often it is seen

// Of labels by position: the last `window` members before a query, in each round; the own position
// otherwise.
inline Counts counts_of_labels(const std::vector<std::vector<int>>& rounds, std::size_t window) {
  const std::size_t n = rounds[0].size();
  Counts counts(n, std::vector<int>(n, 0));
  for (std::size_t i = 0; i < n; ++i) {
    int sum = 0;
    for (const std::vector<int>& label : rounds) {
      std::size_t seen = 0;
      for (std::size_t j = i; j-- > 0 && seen < window;)
        if (label[j] == label[i]) ++seen, ++counts[i][j], ++sum;
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

// What the maps of (b, h) say, as the CPU reads them; h is a head of these maps. With labels, who
// sees nothing is told by no map.
inline Counts counts_in(const AttentionMaps& maps, int64_t b, int64_t h, std::size_t n, bool own) {
  Counts counts(n, std::vector<int>(n, 0)), transposed = counts;
  for (int p = 0; p < maps.passes; ++p) {
    const TileMap& m = maps.pass[p].maps[maps.map_of(b, h)];
    const auto see = [&](Counts& to, int tile, int other, int mask, const uint64_t* words,
                         bool rows) {
      for (int r = 0; r < kTile && mask != kSkip; ++r)
        for (int c = 0; c < kTile; ++c) {
          if (mask >= 0 && !(words[int64_t{mask} * kTile + r] >> c & 1)) continue;
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
    if (std::count(counts[i].begin(), counts[i].end(), 0) == static_cast<std::ptrdiff_t>(n))
      counts[i][i] = 1;
  return counts;
}

inline const PatternSpec kRouting = [] {
  PatternSpec s;
  s.kind = "routing", s.clusters = 5, s.window = 9;
  return s;
}();
inline const PatternSpec kLsh = [] {
  PatternSpec s;
  s.kind = "lsh", s.rounds = 3, s.window = 7, s.buckets = 9;
  return s;
}();
inline const PatternSpec kBlocks = [] {
  PatternSpec s;
  s.kind = "topk_blocks", s.block = 64, s.blocks = 2;
  return s;
}();

inline PatternSpec heads_of_kinds(std::vector<PatternSpec> of) {
  PatternSpec s;
  s.kind = "heads", s.of = std::move(of);
  return s;
}

// q, k and v of a batch under a pattern; what content_maps() makes of them.
struct Batch {
  Engine engine;
  AttentionShape shape;
  int64_t batch, time;
  std::shared_ptr<AttentionPattern> pattern;
  MapCache maps;
  ContentLayer layer;
  std::vector<Var> centroids;
  std::vector<double> values;  // of qkv

  Batch(const PatternSpec& spec, int64_t b, int64_t t, int64_t heads = 2, int64_t size = 8,
        const std::string& device = "cpu")
      : engine(device),
        shape{heads, size, size},
        batch(b),
        time(t),
        pattern(make_pattern(spec, static_cast<int>(heads))),
        maps(*engine.device, static_cast<int>(heads), size),
        layer{dynamic_ranges(*pattern, static_cast<int>(heads)), 2048, 77, 1},
        values(normals(b * t * shape.columns(), 5)) {
    for (const auto& [of, range, tiles, passes] : layer.heads) {
      const int64_t n = range.count * of.clusters * size;
      centroids.push_back(
          of.kind == "routing"
              ? Var{engine.tensor({n}, normals(n, 8), device == "cpu" ? DType::f64 : DType::f32),
                    std::make_shared<Gradient>()}
              : Var{});
    }
  }

  using Made = std::vector<std::shared_ptr<ContentMaps>>;

  Made made(Ctx& ctx, const Tensor& qkv, bool normed = false) {
    layer.normed = normed;
    return content_maps(ctx, layer, maps, qkv, shape, centroids);
  }

  // With the keys that made() of the same `normed` has shared.
  Var attend(Ctx& ctx, const Var& qkv, const Made& made, AttentionForm form = {}) {
    KeptMaps all = maps.get(*pattern, time).maps();
    all.dynamic = {made.begin(), made.end()};
    share_keys(ctx, layer, qkv.value, shape);
    return sparse_attention(ctx, qkv, shape, all, {.form = form});
  }

  Tensor qkv(DType dtype = DType::f64) {
    return engine.tensor({batch, time, shape.columns()}, values, dtype);
  }

  std::vector<float> row(int64_t part, int64_t b, int64_t h, int64_t t) const {
    const auto first = values.begin() + (b * time + t) * shape.columns() +
                       (part * shape.heads + h) * shape.qk_size;
    return {first, first + shape.qk_size};
  }

  std::vector<std::vector<float>> rows(int64_t part, int64_t b, int64_t h) const {
    std::vector<std::vector<float>> all;
    for (int64_t t = 0; t < time; ++t) all.push_back(row(part, b, h, t));
    return all;
  }
};
}  // namespace weft::content_testing
