// SPDX-License-Identifier: MIT
// Rung 5: positions lie in slots, in the order that the pattern asks for, so that pairs which are
// scattered among the positions fill fewer tiles. A tile gathers the rows that its slots name; the
// products are those of rung 4.
#include "kernels/attention/ladder/cpu/rungs.h"
#include "kernels/attention/ladder/cpu/slots.h"
#include "kernels/cpu.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace weft::ladder {
namespace {
void forward_tile(const AttentionForward& f, const TileMap& map, int64_t b, int64_t h, int64_t tile,
                  Block& score) {
  const int32_t* queries = map.query_order + tile * kTile;
  const int64_t dqk = padded(f.q.size), dv = padded(f.v.size);
  const int32_t begin = map.row_start[tile], end = map.row_start[tile + 1];
  const auto scale = static_cast<float>(f.scale);
  Block rows, k, v, y(static_cast<std::size_t>(dv * kTile));
  gather(rows, f.q, b, h, queries);
  const Block q = transposed(rows, kTile);
  float largest[kTile], sum[kTile] = {}, lse[kTile];
  std::fill_n(largest, kTile, kNone);

  score.assign((end - begin) * std::size_t{kTile * kTile}, 0.0f);  // (keys, 64)
  for (int32_t e = begin; e < end; ++e) {
    float* s = score.data() + int64_t{e - begin} * kTile * kTile;
    gather(k, f.k, b, h, map.key_order + int64_t{map.row_tile[e]} * kTile);
    multiply(s, {k.data(), dqk, 1}, q.data(), kTile, dqk, kTile);  // S = K Q^T
    for (int64_t c = 0; c < kTile; ++c, s += kTile) {
      const uint64_t word = word_of(map.masks_transposed, map.row_mask[e], c);
      for (int l = 0; l < kTile; ++l) s[l] = word >> l & 1 ? s[l] * scale : kNone;
      for (int l = 0; l < kTile; ++l) largest[l] = s[l] > largest[l] ? s[l] : largest[l];
    }
  }
  for (float& top : largest) top = top == kNone ? 0 : top;  // e^(-inf - 0) = 0
  for (std::size_t at = 0; at < score.size(); at += kTile)
    for (int l = 0; l < kTile; ++l) sum[l] += exp_of(score[at + l] - largest[l]);
  for (int l = 0; l < kTile; ++l) lse[l] = largest[l] + std::log(sum[l]);
  for (int32_t e = begin; e < end; ++e) {
    float* p = score.data() + int64_t{e - begin} * kTile * kTile;
    for (int64_t c = 0; c < kTile * kTile; c += kTile)
      for (int l = 0; l < kTile; ++l) p[c + l] = sum[l] == 0 ? 0 : exp_of(p[c + l] - lse[l]);
    gather(v, f.v, b, h, map.key_order + int64_t{map.row_tile[e]} * kTile);
    multiply(y.data(), {v.data(), 1, dv}, p, dv, kTile, kTile);  // y += V^T P
  }

  for (int l = 0; l < kTile; ++l) {
    if (queries[l] < 0) continue;
    scalars_of(f.lse, b, h)[queries[l]] = lse[l];
    float* to = f.y.row<float>(b, queries[l], h);
    for (int64_t d = 0; d < f.v.size; ++d) to[d] = y[d * kTile + l];
  }
}

void backward_tile(const AttentionBackward& g, const TileMap& map, int64_t b, int64_t h,
                   int64_t tile) {
  const int32_t* queries = map.query_order + tile * kTile;
  const int64_t dqk = padded(g.q.size), dv = padded(g.v.size);
  const auto scale = static_cast<float>(g.scale);
  Block q, dy, y, k, v, p, ds, dk, dv_rows, dq(static_cast<std::size_t>(kTile * dqk));
  gather(q, g.q, b, h, queries), gather(dy, g.dy, b, h, queries), gather(y, g.y, b, h, queries);
  const Block q_columns = transposed(q, kTile), dy_columns = transposed(dy, kTile);
  float lse[kTile], delta[kTile] = {};
  gather(lse, scalars_of(g.lse, b, h), queries);
  for (int64_t at = 0; at < std::ssize(dy); ++at) delta[at / dv] += dy[at] * y[at];

  for (int32_t e = map.row_start[tile]; e < map.row_start[tile + 1]; ++e) {
    const int32_t* keys = map.key_order + int64_t{map.row_tile[e]} * kTile;
    gather(k, g.k, b, h, keys), gather(v, g.v, b, h, keys);
    p.assign(kTile * kTile, 0.0f), ds.assign(kTile * kTile, 0.0f);
    multiply(p.data(), {k.data(), dqk, 1}, q_columns.data(), kTile, dqk, kTile);
    multiply(ds.data(), {v.data(), dv, 1}, dy_columns.data(), kTile, dv, kTile);  // dP
    for (int64_t c = 0; c < kTile; ++c) {
      const uint64_t word = word_of(map.masks_transposed, map.row_mask[e], c);
      float *p_row = p.data() + c * kTile, *ds_row = ds.data() + c * kTile;
      for (int l = 0; l < kTile; ++l)
        p_row[l] = word >> l & 1 ? exp_of(scale * p_row[l] - lse[l]) : 0;
      for (int l = 0; l < kTile; ++l) ds_row[l] = scale * p_row[l] * (ds_row[l] - delta[l]);
    }
    dk.assign(k.size(), 0.0f), dv_rows.assign(v.size(), 0.0f);
    multiply(dq.data(), {ds.data(), 1, kTile}, k.data(), kTile, kTile, dqk);      // dS^T K
    multiply(dk.data(), {ds.data(), kTile, 1}, q.data(), kTile, kTile, dqk);      // dS Q
    multiply(dv_rows.data(), {p.data(), kTile, 1}, dy.data(), kTile, kTile, dv);  // P dY
    scatter(g.dk, b, h, keys, dk), scatter(g.dv, b, h, keys, dv_rows);
  }
  scatter(g.dq, b, h, queries, dq);
}
}  // namespace

void gathered_forward(Queue&, const AttentionForward& f, const Pattern&) {
  Block score;
  for (int64_t b = 0; b < f.q.batch; ++b)
    for (int64_t h = 0; h < f.q.heads; ++h) {
      const TileMap& map = map_of(f, b, h);
      for (int64_t tile = 0; tile < map.query_tiles; ++tile)
        forward_tile(f, map, b, h, tile, score);
    }
}

void gathered_backward(Queue&, const AttentionBackward& g, const Pattern&) {
  clear(g.dq), clear(g.dk), clear(g.dv);
  for (int64_t b = 0; b < g.q.batch; ++b)
    for (int64_t h = 0; h < g.q.heads; ++h) {
      const TileMap& map = map_of(g, b, h);
      for (int64_t tile = 0; tile < map.query_tiles; ++tile) backward_tile(g, map, b, h, tile);
    }
}
}  // namespace weft::ladder
