// SPDX-License-Identifier: MIT
// Rung 7: each tile is met once. Forward the online softmax (Dao et al. 2022, arXiv 2205.14135,
// algorithm 1) keeps a running maximum, so that scores of one tile are all that is stored.
// Backward one task has a tile of keys and computes all three gradients (five products); tasks that
// share a tile of queries add to its dQ in turn, in the order of the tables: any number of threads
// gives the same bits.
#include "kernels/attention/ladder/cpu/rungs.h"
#include "kernels/attention/ladder/cpu/slots.h"
#include "kernels/attention/ladder/cpu/threads.h"
#include "kernels/cpu.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <vector>

namespace weft::ladder {
namespace {
void forward_tile(const AttentionForward& f, const TileMap& map, int64_t b, int64_t h,
                  int64_t tile) {
  const int32_t* queries = map.query_order + tile * kTile;
  const int64_t dqk = padded(f.q.size), dv = padded(f.v.size);
  const auto scale = static_cast<float>(f.scale);
  Block rows, k, v, p, y(static_cast<std::size_t>(dv * kTile));
  gather(rows, f.q, b, h, queries);
  const Block q = transposed(rows, kTile);
  float largest[kTile], top[kTile], shift[kTile], shrink[kTile], sum[kTile] = {};
  std::fill_n(largest, kTile, kNone);

  for (int32_t e = map.row_start[tile]; e < map.row_start[tile + 1]; ++e) {
    const int32_t* keys = map.key_order + int64_t{map.row_tile[e]} * kTile;
    gather(k, f.k, b, h, keys), gather(v, f.v, b, h, keys);
    p.assign(kTile * kTile, 0.0f);  // (keys, queries)
    multiply(p.data(), {k.data(), dqk, 1}, q.data(), kTile, dqk, kTile);
    std::copy_n(largest, kTile, top);
    for (int64_t c = 0; c < kTile; ++c) {
      const uint64_t word = word_of(map.masks_transposed, map.row_mask[e], c);
      float* s = p.data() + c * kTile;
      for (int l = 0; l < kTile; ++l) s[l] = word >> l & 1 ? s[l] * scale : kNone;
      for (int l = 0; l < kTile; ++l) top[l] = s[l] > top[l] ? s[l] : top[l];
    }
    // What was summed up so far is relative to the old maximum.
    for (int l = 0; l < kTile; ++l) shift[l] = top[l] == kNone ? 0 : top[l];
    for (int l = 0; l < kTile; ++l) shrink[l] = exp_of(largest[l] - shift[l]);
    for (int l = 0; l < kTile; ++l) sum[l] *= shrink[l];
    for (int64_t d = 0; d < dv; ++d)
      for (int l = 0; l < kTile; ++l) y[d * kTile + l] *= shrink[l];
    std::copy_n(top, kTile, largest);
    for (int64_t c = 0; c < kTile * kTile; c += kTile) {
      for (int l = 0; l < kTile; ++l) p[c + l] = exp_of(p[c + l] - shift[l]);
      for (int l = 0; l < kTile; ++l) sum[l] += p[c + l];
    }
    multiply(y.data(), {v.data(), 1, dv}, p.data(), dv, kTile, kTile);
  }

  for (int l = 0; l < kTile; ++l) {
    if (queries[l] < 0) continue;
    scalars_of(f.lse, b, h)[queries[l]] = largest[l] + std::log(sum[l]);
    float* to = f.y.row<float>(b, queries[l], h);
    for (int64_t d = 0; d < f.v.size; ++d) to[d] = sum[l] == 0 ? 0 : y[d * kTile + l] / sum[l];
  }
}

// The order of a head's sums of dQ. Tasks run in the order of col_schedule. Entry e of a key tile
// adds to dQ of its query tile when `of_entry[e]` others have done so. The first task that is not
// finished never waits.
struct DqOrder {
  std::vector<int32_t> of_entry;
  std::vector<std::atomic<int32_t>> done;  // by query tile

  explicit DqOrder(const TileMap& map)
      : of_entry(map.col_start[map.key_tiles]),
        done(map.query_tiles) {
    std::vector<int32_t> count(map.query_tiles);
    for (int32_t rank = 0; rank < map.key_tiles; ++rank) {
      const int32_t* start = map.col_start + map.col_schedule[rank];
      for (int32_t e = start[0]; e < start[1]; ++e) of_entry[e] = count[map.col_tile[e]]++;
    }
  }
};

void backward_tile(const AttentionBackward& g, const TileMap& map, DqOrder& dq_order, int64_t b,
                   int64_t h, int64_t tile) {
  const int32_t* keys = map.key_order + tile * kTile;
  const int64_t dqk = padded(g.q.size), dv = padded(g.v.size);
  const auto scale = static_cast<float>(g.scale);
  Block q, dy, k, v, p, ds;
  gather(k, g.k, b, h, keys), gather(v, g.v, b, h, keys);
  const Block k_columns = transposed(k, kTile), v_columns = transposed(v, kTile);
  Block dq, dk(k.size()), dv_rows(v.size());
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
    dq.assign(q.size(), 0.0f);
    multiply(dq.data(), {ds.data(), kTile, 1}, k.data(), kTile, kTile, dqk);
    std::atomic<int32_t>& done = dq_order.done[map.col_tile[e]];
    for (int32_t now = done; now != dq_order.of_entry[e]; now = done) done.wait(now);
    scatter(g.dq, b, h, queries, dq);
    ++done, done.notify_all();
  }
  scatter(g.dk, b, h, keys, dk), scatter(g.dv, b, h, keys, dv_rows);
}

void write_delta(const AttentionBackward& g, int64_t b, int64_t h) {
  for (int64_t t = 0; t < g.q.time; ++t) {
    const float *dy = g.dy.row<const float>(b, t, h), *y = g.y.row<const float>(b, t, h);
    float sum = 0;
    for (int64_t d = 0; d < g.v.size; ++d) sum += dy[d] * y[d];
    scalars_of(g.delta, b, h)[t] = sum;
  }
}
}  // namespace

void online_forward(Queue&, const AttentionForward& f, const Pattern&) {
  for_each_tile(f, true, [&](const auto&... tile) { forward_tile(f, tile...); });
}

void online_backward(Queue&, const AttentionBackward& g, const Pattern&) {
  clear(g.dq), clear(g.dk), clear(g.dv);
  for (int64_t b = 0; b < g.q.batch; ++b)
    for (int64_t h = 0; h < g.q.heads; ++h) {
      const TileMap& map = map_of(g, b, h);
      write_delta(g, b, h);
      DqOrder dq_order(map);
      std::atomic<int32_t> next = 0;
#pragma omp parallel
      for (int32_t rank; (rank = next++) < map.key_tiles;)
        backward_tile(g, map, dq_order, b, h, map.col_schedule[rank]);
    }
}
}  // namespace weft::ladder
