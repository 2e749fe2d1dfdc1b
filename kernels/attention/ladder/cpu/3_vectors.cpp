// SPDX-License-Identifier: MIT
// Rung 3: a task is a tile of 64 queries, transposed: element d of all of them lies in one line.
// Inner loops run along the queries, so that a vector register holds 16 of them and no sum crosses
// a register. A tile is computed whole, and masked afterwards: many cheap pairs beat few dear ones.
#include "kernels/attention/ladder/cpu/rungs.h"
#include "kernels/cpu.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace weft::ladder {
namespace {
constexpr float kNone = -std::numeric_limits<float>::infinity();
using Block = std::vector<float>;  // (rows, 64)

// The 64 rows of x from `first` on -> (size, 64); zeros behind the last position.
Block transposed(const HeadsView& x, int64_t b, int64_t h, int64_t first) {
  Block out(static_cast<std::size_t>(x.size * kTile));
  for (int64_t l = 0; l < std::min<int64_t>(kTile, x.time - first); ++l)
    for (int64_t d = 0; d < x.size; ++d) out[d * kTile + l] = x.row<float>(b, first + l, h)[d];
  return out;
}

// to[l] = sum_d x[d] block[d][l]: the dot products of x with 64 rows.
void dot(float* to, const float* x, const float* block, int64_t size) {
  std::fill_n(to, kTile, 0.0f);
  for (int64_t d = 0; d < size; ++d)
    for (int l = 0; l < kTile; ++l) to[l] += x[d] * block[d * kTile + l];
}

// block[d][l] += x[d] weight[l]
void add(float* block, const float* x, const float* weight, int64_t size) {
  for (int64_t d = 0; d < size; ++d)
    for (int l = 0; l < kTile; ++l) block[d * kTile + l] += x[d] * weight[l];
}

// Calls key(j, word) for the keys of the tiles that a query tile visits; bit l of the word: query l
// attends key j.
template <class F>
void for_each_key(const TileMap& map, int64_t tile, int64_t keys, F&& key) {
  for (int32_t e = map.row_start[tile]; e < map.row_start[tile + 1]; ++e) {
    const int64_t first = int64_t{map.row_tile[e]} * kTile;
    for (int64_t c = 0; c < std::min<int64_t>(kTile, keys - first); ++c)
      key(first + c, word_of(map.masks_transposed, map.row_mask[e], c));
  }
}

void forward_tile(const AttentionForward& f, const TileMap& map, int64_t b, int64_t h, int64_t tile,
                  Block& score) {
  const int64_t first = tile * kTile, queries = std::min<int64_t>(kTile, f.q.time - first);
  const auto scale = static_cast<float>(f.scale);
  const Block q = transposed(f.q, b, h, first);
  Block y(static_cast<std::size_t>(f.v.size * kTile));
  float largest[kTile], sum[kTile] = {}, lse[kTile];
  std::fill_n(largest, kTile, kNone);

  score.resize((map.row_start[tile + 1] - map.row_start[tile]) * std::size_t{kTile * kTile});
  float* s = score.data();
  for_each_key(map, tile, f.k.time, [&](int64_t j, uint64_t word) {
    dot(s, f.k.row<const float>(b, j, h), q.data(), f.q.size);
    for (int l = 0; l < kTile; ++l) s[l] = word >> l & 1 ? s[l] * scale : kNone;
    for (int l = 0; l < kTile; ++l) largest[l] = s[l] > largest[l] ? s[l] : largest[l];
    s += kTile;
  });
  for (float& top : largest) top = top == kNone ? 0 : top;  // e^(-inf - 0) = 0
  for (const float* at = score.data(); at < s; at += kTile)
    for (int l = 0; l < kTile; ++l) sum[l] += exp_of(at[l] - largest[l]);
  for (int l = 0; l < kTile; ++l) lse[l] = largest[l] + std::log(sum[l]);
  s = score.data();
  for_each_key(map, tile, f.k.time, [&](int64_t j, uint64_t) {
    for (int l = 0; l < kTile; ++l) s[l] = sum[l] == 0 ? 0 : exp_of(s[l] - lse[l]);
    add(y.data(), f.v.row<const float>(b, j, h), s, f.v.size);
    s += kTile;
  });

  std::copy_n(lse, queries, scalars_of(f.lse, b, h) + first);
  for (int64_t l = 0; l < queries; ++l)
    for (int64_t d = 0; d < f.v.size; ++d) f.y.row<float>(b, first + l, h)[d] = y[d * kTile + l];
}

void backward_tile(const AttentionBackward& g, const TileMap& map, int64_t b, int64_t h,
                   int64_t tile) {
  const int64_t first = tile * kTile, queries = std::min<int64_t>(kTile, g.q.time - first);
  const auto scale = static_cast<float>(g.scale);
  const Block q = transposed(g.q, b, h, first), dy = transposed(g.dy, b, h, first),
              y = transposed(g.y, b, h, first);
  Block dq(q.size());
  float lse[kTile] = {}, delta[kTile] = {}, p[kTile], ds[kTile];
  std::copy_n(scalars_of(g.lse, b, h) + first, queries, lse);
  for (int64_t d = 0; d < g.v.size; ++d)
    for (int l = 0; l < kTile; ++l) delta[l] += dy[d * kTile + l] * y[d * kTile + l];

  for_each_key(map, tile, g.k.time, [&](int64_t j, uint64_t word) {
    const float *k = g.k.row<const float>(b, j, h), *v = g.v.row<const float>(b, j, h);
    dot(p, k, q.data(), g.q.size);
    dot(ds, v, dy.data(), g.v.size);  // dP
    for (int l = 0; l < kTile; ++l) p[l] = word >> l & 1 ? exp_of(scale * p[l] - lse[l]) : 0;
    for (int l = 0; l < kTile; ++l) ds[l] = scale * p[l] * (ds[l] - delta[l]);
    add(dq.data(), k, ds, g.q.size);
    float *dk = g.dk.row<float>(b, j, h), *dv = g.dv.row<float>(b, j, h);
    for (int64_t l = 0; l < queries; ++l) {
      const float *q_row = g.q.row<const float>(b, first + l, h),
                  *dy_row = g.dy.row<const float>(b, first + l, h);
      for (int64_t d = 0; d < g.q.size; ++d) dk[d] += ds[l] * q_row[d];
      for (int64_t d = 0; d < g.v.size; ++d) dv[d] += p[l] * dy_row[d];
    }
  });
  for (int64_t l = 0; l < queries; ++l)
    for (int64_t d = 0; d < g.q.size; ++d) g.dq.row<float>(b, first + l, h)[d] = dq[d * kTile + l];
}
}  // namespace

void vectors_forward(Queue&, const AttentionForward& f, const Pattern&) {
  Block score;
  for (int64_t b = 0; b < f.q.batch; ++b)
    for (int64_t h = 0; h < f.q.heads; ++h) {
      const TileMap& map = map_of(f, b, h);
      for (int64_t tile = 0; tile < map.query_tiles; ++tile)
        forward_tile(f, map, b, h, tile, score);
    }
}

void vectors_backward(Queue&, const AttentionBackward& g, const Pattern&) {
  clear(g.dk), clear(g.dv);
  for (int64_t b = 0; b < g.q.batch; ++b)
    for (int64_t h = 0; h < g.q.heads; ++h) {
      const TileMap& map = map_of(g, b, h);
      for (int64_t tile = 0; tile < map.query_tiles; ++tile) backward_tile(g, map, b, h, tile);
    }
}
}  // namespace weft::ladder
