// SPDX-License-Identifier: MIT
// Rung 6: threads take tiles, the longest lists first. A tile alone writes what it owns, so nothing
// is added up across threads, and the bits do not depend on their number. Forward that is so for
// tiles of queries. Backward the rows of dK and dV belong to keys: dQ and the two of them take
// a pass each, in which P and dS are computed again (seven products instead of five).
#include "kernels/attention/ladder/cpu/rungs.h"
#include "kernels/attention/ladder/cpu/slots.h"
#include "kernels/attention/ladder/cpu/threads.h"
#include "kernels/cpu.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace weft::ladder {
namespace {
void forward_tile(const AttentionForward& f, const TileMap& map, int64_t b, int64_t h,
                  int64_t tile) {
  const int32_t* queries = map.query_order + tile * kTile;
  const int64_t dqk = padded(f.q.size), dv = padded(f.v.size);
  const int32_t begin = map.row_start[tile], end = map.row_start[tile + 1];
  const auto scale = static_cast<float>(f.scale);
  Block rows, k, v, score, y(static_cast<std::size_t>(dv * kTile));
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

// dq of a tile of queries; stores their delta.
void backward_queries(const AttentionBackward& g, const TileMap& map, int64_t b, int64_t h,
                      int64_t tile) {
  const int32_t* queries = map.query_order + tile * kTile;
  const int64_t dqk = padded(g.q.size), dv = padded(g.v.size);
  const auto scale = static_cast<float>(g.scale);
  Block q, dy, y, k, v, p, ds, dq(static_cast<std::size_t>(kTile * dqk));
  gather(q, g.q, b, h, queries), gather(dy, g.dy, b, h, queries), gather(y, g.y, b, h, queries);
  const Block q_columns = transposed(q, kTile), dy_columns = transposed(dy, kTile);
  float lse[kTile], delta[kTile] = {};
  gather(lse, scalars_of(g.lse, b, h), queries);
  for (int64_t at = 0; at < std::ssize(dy); ++at) delta[at / dv] += dy[at] * y[at];
  for (int l = 0; l < kTile; ++l)
    if (queries[l] >= 0) scalars_of(g.delta, b, h)[queries[l]] = delta[l];

  for (int32_t e = map.row_start[tile]; e < map.row_start[tile + 1]; ++e) {
    const int32_t* keys = map.key_order + int64_t{map.row_tile[e]} * kTile;
    gather(k, g.k, b, h, keys), gather(v, g.v, b, h, keys);
    p.assign(kTile * kTile, 0.0f), ds.assign(kTile * kTile, 0.0f);  // (keys, queries)
    multiply(p.data(), {k.data(), dqk, 1}, q_columns.data(), kTile, dqk, kTile);
    multiply(ds.data(), {v.data(), dv, 1}, dy_columns.data(), kTile, dv, kTile);
    for (int64_t c = 0; c < kTile; ++c) {
      const uint64_t word = word_of(map.masks_transposed, map.row_mask[e], c);
      float *p_row = p.data() + c * kTile, *ds_row = ds.data() + c * kTile;
      for (int l = 0; l < kTile; ++l)
        p_row[l] = word >> l & 1 ? exp_of(scale * p_row[l] - lse[l]) : 0;
      for (int l = 0; l < kTile; ++l) ds_row[l] = scale * p_row[l] * (ds_row[l] - delta[l]);
    }
    multiply(dq.data(), {ds.data(), 1, kTile}, k.data(), kTile, kTile, dqk);
  }
  scatter(g.dq, b, h, queries, dq);
}

// dk and dv of a tile of keys: the same with the sides exchanged.
void backward_keys(const AttentionBackward& g, const TileMap& map, int64_t b, int64_t h,
                   int64_t tile) {
  const int32_t* keys = map.key_order + tile * kTile;
  const int64_t dqk = padded(g.q.size), dv = padded(g.v.size);
  const auto scale = static_cast<float>(g.scale);
  Block q, dy, k, v, p, ds;
  gather(k, g.k, b, h, keys), gather(v, g.v, b, h, keys);
  const Block k_columns = transposed(k, kTile), v_columns = transposed(v, kTile);
  Block dk(k.size()), dv_rows(v.size());
  float lse[kTile], delta[kTile];

  for (int32_t e = map.col_start[tile]; e < map.col_start[tile + 1]; ++e) {
    const int32_t* queries = map.query_order + int64_t{map.col_tile[e]} * kTile;
    gather(q, g.q, b, h, queries), gather(dy, g.dy, b, h, queries);
    gather(lse, scalars_of(g.lse, b, h), queries);
    gather(delta, scalars_of(g.delta, b, h), queries);
    p.assign(kTile * kTile, 0.0f), ds.assign(kTile * kTile, 0.0f);  // (queries, keys)
    multiply(p.data(), {q.data(), dqk, 1}, k_columns.data(), kTile, dqk, kTile);
    multiply(ds.data(), {dy.data(), dv, 1}, v_columns.data(), kTile, dv, kTile);
    for (int64_t r = 0; r < kTile; ++r) {
      const uint64_t word = word_of(map.masks, map.col_mask[e], r);
      float *p_row = p.data() + r * kTile, *ds_row = ds.data() + r * kTile;
      for (int l = 0; l < kTile; ++l)
        p_row[l] = word >> l & 1 ? exp_of(scale * p_row[l] - lse[r]) : 0;
      for (int l = 0; l < kTile; ++l) ds_row[l] = scale * p_row[l] * (ds_row[l] - delta[r]);
    }
    multiply(dk.data(), {ds.data(), 1, kTile}, q.data(), kTile, kTile, dqk);
    multiply(dv_rows.data(), {p.data(), 1, kTile}, dy.data(), kTile, kTile, dv);
  }
  scatter(g.dk, b, h, keys, dk), scatter(g.dv, b, h, keys, dv_rows);
}
}  // namespace

void threads_forward(Queue&, const AttentionForward& f, const Pattern&) {
  for_each_tile(f, true, [&](const auto&... tile) { forward_tile(f, tile...); });
}

void threads_backward(Queue&, const AttentionBackward& g, const Pattern&) {
  clear(g.dq), clear(g.dk), clear(g.dv);
  for_each_tile(g, true, [&](const auto&... tile) { backward_queries(g, tile...); });
  for_each_tile(g, false, [&](const auto&... tile) { backward_keys(g, tile...); });
}
}  // namespace weft::ladder
