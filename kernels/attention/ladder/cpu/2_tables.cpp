// SPDX-License-Identifier: MIT
// Rung 2: the tile tables say where the pairs are. A query goes through the tiles of its tile's
// list and the set bits of its mask words; tiles without a pair are never met, and the pattern is
// not asked. The sums are those of rung 1.
#include "kernels/attention/ladder/cpu/rungs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace weft::ladder {
namespace {
constexpr float kNone = -std::numeric_limits<float>::infinity();

float dot(const float* a, const float* b, int64_t size) {
  float sum = 0;
  for (int64_t d = 0; d < size; ++d) sum += a[d] * b[d];
  return sum;
}

// sum += weight * x
void add(float* sum, float weight, const float* x, int64_t size) {
  for (int64_t d = 0; d < size; ++d) sum[d] += weight * x[d];
}

// Calls pair(j) for every key j that query i attends, in order.
template <class F>
void for_each_key(const TileMap& map, int64_t i, F&& pair) {
  const int64_t tile = i / kTile, row = i % kTile;
  for (int32_t e = map.row_start[tile]; e < map.row_start[tile + 1]; ++e) {
    const int64_t first = int64_t{map.row_tile[e]} * kTile;
    for (uint64_t bits = word_of(map.masks, map.row_mask[e], row); bits != 0; bits &= bits - 1)
      pair(first + std::countr_zero(bits));
  }
}

// y and lse of query i. `score` is scratch.
void forward_query(const AttentionForward& f, const TileMap& map, int64_t b, int64_t h, int64_t i,
                   std::vector<float>& score) {
  const auto scale = static_cast<float>(f.scale);
  const float* q = f.q.row<const float>(b, i, h);
  float* y = f.y.row<float>(b, i, h);
  float& lse = scalars_of(f.lse, b, h)[i];
  std::fill(y, y + f.v.size, 0.0f);
  lse = kNone;

  score.clear();
  for_each_key(map, i, [&](int64_t j) {
    score.push_back(scale * dot(q, f.k.row<const float>(b, j, h), f.q.size));
  });
  if (score.empty()) return;  // the query sees nothing

  const float largest = *std::max_element(score.begin(), score.end());
  float sum = 0;
  for (const float s : score) sum += std::exp(s - largest);
  lse = largest + std::log(sum);
  auto next = score.begin();
  for_each_key(map, i, [&](int64_t j) {
    add(y, std::exp(*next++ - lse), f.v.row<const float>(b, j, h), f.v.size);
  });
}

// The shares of the pairs of query i in dq_i, dk_j and dv_j.
void backward_query(const AttentionBackward& g, const TileMap& map, int64_t b, int64_t h,
                    int64_t i) {
  const auto scale = static_cast<float>(g.scale);
  const float *q = g.q.row<const float>(b, i, h), *dy = g.dy.row<const float>(b, i, h);
  float* dq = g.dq.row<float>(b, i, h);
  const float lse = scalars_of(g.lse, b, h)[i];
  const float delta = dot(dy, g.y.row<const float>(b, i, h), g.v.size);
  for_each_key(map, i, [&](int64_t j) {
    const float *k = g.k.row<const float>(b, j, h), *v = g.v.row<const float>(b, j, h);
    const float p = std::exp(scale * dot(q, k, g.q.size) - lse);
    const float ds = p * (dot(dy, v, g.v.size) - delta);
    add(dq, scale * ds, k, g.q.size);
    add(g.dk.row<float>(b, j, h), scale * ds, q, g.q.size);
    add(g.dv.row<float>(b, j, h), p, dy, g.v.size);
  });
}
}  // namespace

void tables_forward(Queue&, const AttentionForward& f, const Pattern&) {
  std::vector<float> score;
  for (int64_t b = 0; b < f.q.batch; ++b)
    for (int64_t h = 0; h < f.q.heads; ++h) {
      const TileMap& map = map_of(f, b, h);
      for (int64_t i = 0; i < f.q.time; ++i) forward_query(f, map, b, h, i, score);
    }
}

void tables_backward(Queue&, const AttentionBackward& g, const Pattern&) {
  clear(g.dq), clear(g.dk), clear(g.dv);
  for (int64_t b = 0; b < g.q.batch; ++b)
    for (int64_t h = 0; h < g.q.heads; ++h) {
      const TileMap& map = map_of(g, b, h);
      for (int64_t i = 0; i < g.q.time; ++i) backward_query(g, map, b, h, i);
    }
}
}  // namespace weft::ladder
