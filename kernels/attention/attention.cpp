// SPDX-License-Identifier: MIT
// Sparse attention on the CPU: the definition, and what small models train with. Passes run one after the
// other; in a pass each (batch, head, tile) is one task that owns its outputs, so that the bits do not depend
// on the number of threads. What the tiles are made of is in tiles.h.
#include "kernels/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <vector>

#include "kernels/attention/check.h"
#include "kernels/attention/tiles.h"
#include "kernels/cpu.h"
#include "kernels/interrupt.h"

namespace weft {
namespace {

using namespace attention;

// Scores of a tile into probabilities relative to the running maximum; the sums so far are rescaled to it.
template <class W, int E>
struct OnlineSoftmax {
  static constexpr W kNone = -std::numeric_limits<W>::infinity();
  W maximum[E], sum[E];

  OnlineSoftmax() {
    std::fill(maximum, maximum + E, kNone);
    std::fill(sum, sum + E, W(0));
  }
  // Goes on from a finished row: y is its sum relative to e^lse, and its weights add up to 1.
  void resume(int row, W lse) {
    maximum[row] = lse;
    sum[row] = std::isinf(lse) ? W(0) : W(1);
  }
  // s (keys, E): scores in, probabilities out. y (dv, E)
  void tile(W* s, const Partners<E>& keys, W scale, W* y, int64_t dv) {
    W top[E], shift[E];
    std::copy(maximum, maximum + E, top);
    for (int k = 0; k < keys.count; ++k) {
      W* row = s + k * E;
      for (int l = 0; l < E; ++l) row[l] = keys.word[k] >> l & 1 ? row[l] * scale : kNone;
      for (int l = 0; l < E; ++l) top[l] = row[l] > top[l] ? row[l] : top[l];
    }
    for (int l = 0; l < E; ++l) shift[l] = top[l] == kNone ? W(0) : top[l];  // no key so far: e^-inf = 0
    rescale(top, shift, y, dv);
    for (int k = 0; k < keys.count; ++k) {
      W* row = s + k * E;
      for (int l = 0; l < E; ++l) row[l] = exp_of(row[l] - shift[l]);
      for (int l = 0; l < E; ++l) sum[l] += row[l];
    }
  }

 private:
  void rescale(const W* top, const W* shift, W* y, int64_t dv) {
    if (std::equal(top, top + E, maximum)) return;
    W shrink[E];
    for (int l = 0; l < E; ++l) shrink[l] = exp_of(maximum[l] - shift[l]);
    for (int l = 0; l < E; ++l) sum[l] *= shrink[l];
    for (int64_t d = 0; d < dv; ++d)
      for (int l = 0; l < E; ++l) y[d * E + l] *= shrink[l];
    std::copy(top, top + E, maximum);
  }
};

template <class T, int E>
void forward_tile(const AttentionForward& f, const TileMap& map, int64_t b, int64_t h, int32_t tile) {
  using W = wide_t<T>;
  if (map.accumulate && map.row_start[tile] == map.row_start[tile + 1]) return;
  const int64_t dqk = f.q.size, dv = f.v.size;
  const int32_t* queries = map.query_order + static_cast<int64_t>(tile) * E;
  const SlotSegments<E> segments(f.segments.queries, f.segments.keys, b, queries);
  Blocks<W, E> blocks(2 * dqk + 2 * dv + E);
  W *q = blocks.take(dqk), *k = blocks.take(dqk), *v = blocks.take(dv), *p = blocks.take(E);
  W* y = blocks.take_zeros(dv);
  W* lse = f.lse.as<W>() + (b * f.q.heads + h) * f.q.time;
  OnlineSoftmax<W, E> softmax;
  if (map.accumulate) {
    gather_owned<T, E>(f.y, b, h, queries, y);
    for (int l = 0; l < E; ++l)
      if (queries[l] >= 0) softmax.resume(l, lse[queries[l]]);
  }
  gather_owned<T, E>(f.q, b, h, queries, q);
  for (int32_t e = map.row_start[tile]; e < map.row_start[tile + 1]; ++e) {
    const int32_t* slots = map.key_order + static_cast<int64_t>(map.row_tile[e]) * E;
    const Partners<E> keys(map.masks_transposed, map.row_mask[e], slots, segments);
    gather<T>(f.k, b, h, keys, k);
    gather<T>(f.v, b, h, keys, v);
    multiply_scores<W, E>(p, k, q, keys.count, dqk);
    softmax.tile(p, keys, static_cast<W>(f.scale), y, dv);
    add_weighted<W, E>(y, v, p, keys.count, dv);
  }
  for (int64_t d = 0; d < dv; ++d)  // sum 0: the row attends to nothing
    for (int l = 0; l < E; ++l) y[d * E + l] = softmax.sum[l] == 0 ? W(0) : y[d * E + l] / softmax.sum[l];
  for (int l = 0; l < E; ++l)
    if (queries[l] >= 0) lse[queries[l]] = softmax.maximum[l] + std::log(softmax.sum[l]);
  scatter_owned<T, E>(f.y, b, h, queries, y, W(1), false);
}

// delta_i = dy_i . y_i of every row of one (batch, head).
template <class T>
void write_delta(const AttentionBackward& g, int64_t b, int64_t h) {
  using W = wide_t<T>;
  W* delta = g.delta.as<W>() + (b * g.q.heads + h) * g.q.time;
  for (int64_t t = 0; t < g.q.time; ++t) {
    const T *dy = g.dy.row<const T>(b, t, h), *y = g.y.row<const T>(b, t, h);
    W sum = 0;
    for (int64_t d = 0; d < g.v.size; ++d) sum += static_cast<W>(dy[d]) * static_cast<W>(y[d]);
    delta[t] = sum;
  }
}

// lse or delta of the queries in E slots; what stands for empty slots is never used.
template <class W, int E>
void gather_scalars(const TensorView& x, int64_t row, const int32_t* slots, W* out) {
  const W* in = x.as<W>() + row * x.shape[2];
  for (int l = 0; l < E; ++l) out[l] = slots[l] < 0 ? W(0) : in[slots[l]];
}

// Walks a row of tiles: dq_i = scale * sum_j ds_ij k_j.
template <class T, int E>
void backward_row(const AttentionBackward& g, const TileMap& map, int64_t b, int64_t h, int32_t tile) {
  using W = wide_t<T>;
  if (map.accumulate && map.row_start[tile] == map.row_start[tile + 1]) return;
  const int64_t dqk = g.q.size, dv = g.v.size;
  const W scale = static_cast<W>(g.scale);
  const int32_t* queries = map.query_order + static_cast<int64_t>(tile) * E;
  const SlotSegments<E> segments(g.segments.queries, g.segments.keys, b, queries);
  Blocks<W, E> blocks(3 * dqk + 2 * dv + 2 * E);
  W *q = blocks.take(dqk), *k = blocks.take(dqk), *dq = blocks.take_zeros(dqk);
  W *dy = blocks.take(dv), *v = blocks.take(dv), *s = blocks.take(E), *ds = blocks.take(E), lse[E], delta[E];
  gather_owned<T, E>(g.q, b, h, queries, q);
  gather_owned<T, E>(g.dy, b, h, queries, dy);
  gather_scalars<W, E>(g.lse, b * g.q.heads + h, queries, lse);
  gather_scalars<W, E>(g.delta, b * g.q.heads + h, queries, delta);
  for (int32_t e = map.row_start[tile]; e < map.row_start[tile + 1]; ++e) {
    const int32_t* slots = map.key_order + static_cast<int64_t>(map.row_tile[e]) * E;
    const Partners<E> keys(map.masks_transposed, map.row_mask[e], slots, segments);
    gather<T>(g.k, b, h, keys, k);
    gather<T>(g.v, b, h, keys, v);
    multiply_scores<W, E>(s, k, q, keys.count, dqk);
    multiply_scores<W, E>(ds, v, dy, keys.count, dv);
    for (int c = 0; c < keys.count; ++c) {
      W *s_row = s + c * E, *ds_row = ds + c * E;
      for (int l = 0; l < E; ++l) s_row[l] = exp_of(scale * s_row[l] - lse[l]);
      for (int l = 0; l < E; ++l)
        ds_row[l] = keys.word[c] >> l & 1 ? s_row[l] * (ds_row[l] - delta[l]) : W(0);
    }
    add_weighted<W, E>(dq, k, ds, keys.count, dqk);
  }
  scatter_owned<T, E>(g.dq, b, h, queries, dq, scale, map.accumulate);
}

// Walks a column of tiles: dv_j = sum_i p_ij dy_i, dk_j = scale * sum_i ds_ij q_i.
template <class T, int E>
void backward_column(const AttentionBackward& g, const TileMap& map, int64_t b, int64_t h, int32_t tile) {
  using W = wide_t<T>;
  if (map.accumulate && map.col_start[tile] == map.col_start[tile + 1]) return;
  const int64_t dqk = g.q.size, dv = g.v.size, row = (b * g.q.heads + h) * g.q.time;
  const W scale = static_cast<W>(g.scale), *lse = g.lse.as<W>() + row, *delta = g.delta.as<W>() + row;
  const int32_t* keys = map.key_order + static_cast<int64_t>(tile) * E;
  const SlotSegments<E> segments(g.segments.keys, g.segments.queries, b, keys);
  Blocks<W, E> blocks(3 * dqk + 3 * dv + 2 * E);
  W *k = blocks.take(dqk), *q = blocks.take(dqk), *dk = blocks.take_zeros(dqk), *v = blocks.take(dv);
  W *dy = blocks.take(dv), *dv_sum = blocks.take_zeros(dv), *p = blocks.take(E), *ds = blocks.take(E);
  gather_owned<T, E>(g.k, b, h, keys, k);
  gather_owned<T, E>(g.v, b, h, keys, v);
  for (int32_t e = map.col_start[tile]; e < map.col_start[tile + 1]; ++e) {
    const int32_t* slots = map.query_order + static_cast<int64_t>(map.col_tile[e]) * E;
    const Partners<E> queries(map.masks, map.col_mask[e], slots, segments);
    gather<T>(g.q, b, h, queries, q);
    gather<T>(g.dy, b, h, queries, dy);
    multiply_scores<W, E>(p, q, k, queries.count, dqk);
    multiply_scores<W, E>(ds, dy, v, queries.count, dv);
    for (int r = 0; r < queries.count; ++r) {
      W *p_row = p + r * E, *ds_row = ds + r * E;
      const W row_lse = lse[queries.position[r]], row_delta = delta[queries.position[r]];
      for (int l = 0; l < E; ++l) p_row[l] = exp_of(scale * p_row[l] - row_lse);
      for (int l = 0; l < E; ++l) p_row[l] = queries.word[r] >> l & 1 ? p_row[l] : W(0);
      for (int l = 0; l < E; ++l)
        ds_row[l] = queries.word[r] >> l & 1 ? p_row[l] * (ds_row[l] - row_delta) : W(0);
    }
    add_weighted<W, E>(dv_sum, dy, p, queries.count, dv);
    add_weighted<W, E>(dk, q, ds, queries.count, dqk);
  }
  scatter_owned<T, E>(g.dk, b, h, keys, dk, scale, map.accumulate);
  scatter_owned<T, E>(g.dv, b, h, keys, dv_sum, W(1), map.accumulate);
}

int64_t elements_of(const HeadsView& x) { return x.batch * x.time * x.heads * x.size; }

// Calls task(map, b, h, rank) for every (batch, head) of q and every rank below the largest number of tiles.
// An exception cannot leave a parallel loop: after an interrupt the remaining tasks do nothing.
template <class F>
void for_each_tile(const AttentionMaps& maps, const AttentionPass& pass, const HeadsView& q, int32_t tiles,
                   F&& task) {
  std::atomic<bool> given_up = false;
#pragma omp parallel for collapse(3) schedule(dynamic) if (elements_of(q) > kParallelElements)
  for (int64_t b = 0; b < q.batch; ++b)
    for (int32_t rank = 0; rank < tiles; ++rank)
      for (int64_t h = 0; h < q.heads; ++h) {
        if (interrupted()) given_up = true;
        if (!given_up) task(pass.maps[maps.group_of_head[h]], b, h, rank);
      }
  if (given_up) throw_interrupted();
}

template <class T, int E>
void forward_pass(const AttentionForward& f, const AttentionPass& pass) {
  for_each_tile(f.maps, pass, f.q, pass.query_tiles,
                [&](const TileMap& map, int64_t b, int64_t h, int32_t rank) {
                  if (rank < map.query_tiles) forward_tile<T, E>(f, map, b, h, map.row_schedule[rank]);
                });
}

template <class T, int E>
void backward_pass(const AttentionBackward& g, const AttentionPass& pass) {
  for_each_tile(g.maps, pass, g.q, pass.query_tiles,
                [&](const TileMap& map, int64_t b, int64_t h, int32_t rank) {
                  if (rank < map.query_tiles) backward_row<T, E>(g, map, b, h, map.row_schedule[rank]);
                });
  for_each_tile(g.maps, pass, g.k, pass.key_tiles,
                [&](const TileMap& map, int64_t b, int64_t h, int32_t rank) {
                  if (rank < map.key_tiles) backward_column<T, E>(g, map, b, h, map.col_schedule[rank]);
                });
}

}  // namespace

void run(CpuQueue&, const AttentionForward& f) {
  check(f);
  dispatch_float(f.q.dtype, [&]<class T>() {
    for (int32_t p = 0; p < f.maps.passes; ++p) {
      const AttentionPass& pass = f.maps.pass[p];
      pass.edge == kTile ? forward_pass<T, kTile>(f, pass) : forward_pass<T, kSmallTile>(f, pass);
    }
  });
}

void run(CpuQueue&, const AttentionBackward& g) {
  check(g);
  dispatch_float(g.q.dtype, [&]<class T>() {
#pragma omp parallel for collapse(2) if (elements_of(g.y) > kParallelElements)
    for (int64_t b = 0; b < g.q.batch; ++b)
      for (int64_t h = 0; h < g.q.heads; ++h) write_delta<T>(g, b, h);
    for (int32_t p = 0; p < g.maps.passes; ++p) {
      const AttentionPass& pass = g.maps.pass[p];
      pass.edge == kTile ? backward_pass<T, kTile>(g, pass) : backward_pass<T, kSmallTile>(g, pass);
    }
  });
}

}  // namespace weft
