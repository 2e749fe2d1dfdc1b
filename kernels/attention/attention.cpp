// SPDX-License-Identifier: MIT
// Sparse attention on the CPU, the fast form: what small models train with. The definition is
// definition.h. A task computes one tile of queries (or of keys, for dK and dV) of one head, and
// reads the tiles in its list in order. It alone writes its outputs, so that the bits do not depend
// on the number of threads. Tiles lie transposed (tiles.h): inner loops run over the rows of a
// tile.
#include "kernels/attention/attention.h"

#include "kernels/attention/check.h"
#include "kernels/attention/tiles.h"
#include "kernels/cpu.h"

#include <algorithm>
#include <limits>

namespace weft {
namespace {
using namespace attention;

// The online softmax (Dao et al. 2022, arXiv 2205.14135, algorithm 1): scores into probabilities
// relative to the running maximum, E rows at a time, one a lane.
template <class W, int E>
struct OnlineSoftmax {
  static constexpr W kNone = -std::numeric_limits<W>::infinity();
  W maximum[E], sum[E];

  OnlineSoftmax() {
    std::fill(maximum, maximum + E, kNone);
    std::fill(sum, sum + E, W(0));
  }

  // Goes on from a finished row: y is relative to e^lse, and its weights add up to 1.
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
    // no key so far: e^-inf = 0
    for (int l = 0; l < E; ++l) shift[l] = top[l] == kNone ? W(0) : top[l];
    rescale(top, shift, y, dv);
    for (int k = 0; k < keys.count; ++k) {
      W* row = s + k * E;
      for (int l = 0; l < E; ++l) row[l] = exp_of(row[l] - shift[l]);
      for (int l = 0; l < E; ++l) sum[l] += row[l];
    }
  }

  // Divides by the sums; rows that attend to nothing become 0.
  void finish(W* y, int64_t dv) const {
    for (int64_t d = 0; d < dv; ++d)
      for (int l = 0; l < E; ++l) y[d * E + l] = sum[l] == 0 ? W(0) : y[d * E + l] / sum[l];
  }

  W lse(int row) const { return maximum[row] + std::log(sum[row]); }

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

// ---- forward: y and lse of the E queries of a tile ----

template <class T, int E>
void forward_tile(const AttentionForward& f, const TileMap& map, int64_t b, int64_t h,
                  int32_t tile) {
  using W = wide_t<T>;
  const int64_t dqk = f.q.size, dv = f.v.size;
  const int32_t* queries = map.query_order + static_cast<int64_t>(tile) * E;
  const SlotSegments<E> segments(f.segments.queries, f.segments.keys, b, queries);
  Blocks<W, E> blocks(2 * dqk + 2 * dv + E);
  W *q = blocks.take(dqk), *k = blocks.take(dqk), *v = blocks.take(dv), *p = blocks.take(E);
  W* y = blocks.take_zeros(dv);
  W* lse = f.lse.as<W>() + (b * f.q.heads + h) * f.q.time;
  OnlineSoftmax<W, E> softmax;
  if (map.accumulate) {  // an earlier pass over these heads left y and lse
    gather_owned<T, E>(f.y, b, h, queries, y);
    for (int l = 0; l < E; ++l)
      if (queries[l] >= 0) softmax.resume(l, lse[queries[l]]);
  }
  gather_owned<T, E>(f.q, b, h, queries, q);
  for (int32_t e = map.row_start[tile]; e < map.row_start[tile + 1]; ++e) {
    const auto keys = Partners<E>::keys(map, e, segments);
    gather<T>(f.k, b, h, keys, k);
    gather<T>(f.v, b, h, keys, v);
    multiply_scores<W, E>(p, k, q, keys.count, dqk);        // S = Q K^T
    softmax.tile(p, keys, static_cast<W>(f.scale), y, dv);  // P = exp(scale S - maximum)
    add_weighted<W, E>(y, v, p, keys.count, dv);            // y += P V
  }
  softmax.finish(y, dv);
  for (int l = 0; l < E; ++l)
    if (queries[l] >= 0) lse[queries[l]] = softmax.lse(l);
  scatter_owned<T, E>(f.y, b, h, queries, y, W(1), false);
}

// ---- backward: P is recomputed from lse; dS = P (dP - delta) ----

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

// A tile of queries: dq_i = scale * sum_j ds_ij k_j.
template <class T, int E>
void backward_queries(const AttentionBackward& g, const TileMap& map, int64_t b, int64_t h,
                      int32_t tile) {
  using W = wide_t<T>;
  const int64_t dqk = g.q.size, dv = g.v.size;
  const W scale = static_cast<W>(g.scale);
  const int32_t* queries = map.query_order + static_cast<int64_t>(tile) * E;
  const SlotSegments<E> segments(g.segments.queries, g.segments.keys, b, queries);
  Blocks<W, E> blocks(3 * dqk + 2 * dv + 2 * E);
  W *q = blocks.take(dqk), *k = blocks.take(dqk), *dq = blocks.take_zeros(dqk);
  W *dy = blocks.take(dv), *v = blocks.take(dv), *s = blocks.take(E), *ds = blocks.take(E), lse[E],
    delta[E];
  gather_owned<T, E>(g.q, b, h, queries, q);
  gather_owned<T, E>(g.dy, b, h, queries, dy);
  gather_scalars<W, E>(g.lse, b * g.q.heads + h, queries, lse);
  gather_scalars<W, E>(g.delta, b * g.q.heads + h, queries, delta);
  for (int32_t e = map.row_start[tile]; e < map.row_start[tile + 1]; ++e) {
    const auto keys = Partners<E>::keys(map, e, segments);
    gather<T>(g.k, b, h, keys, k);
    gather<T>(g.v, b, h, keys, v);
    multiply_scores<W, E>(s, k, q, keys.count, dqk);
    multiply_scores<W, E>(ds, v, dy, keys.count, dv);  // dP
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

// A tile of keys: dv_j = sum_i p_ij dy_i, dk_j = scale * sum_i ds_ij q_i.
template <class T, int E>
void backward_keys(const AttentionBackward& g, const TileMap& map, int64_t b, int64_t h,
                   int32_t tile) {
  using W = wide_t<T>;
  const int64_t dqk = g.q.size, dv = g.v.size, row = (b * g.q.heads + h) * g.q.time;
  const W scale = static_cast<W>(g.scale), *lse = g.lse.as<W>() + row,
          *delta = g.delta.as<W>() + row;
  const int32_t* keys = map.key_order + static_cast<int64_t>(tile) * E;
  const SlotSegments<E> segments(g.segments.keys, g.segments.queries, b, keys);
  Blocks<W, E> blocks(3 * dqk + 3 * dv + 2 * E);
  W *k = blocks.take(dqk), *q = blocks.take(dqk), *dk = blocks.take_zeros(dqk),
    *v = blocks.take(dv);
  W *dy = blocks.take(dv), *dv_sum = blocks.take_zeros(dv), *p = blocks.take(E),
    *ds = blocks.take(E);
  gather_owned<T, E>(g.k, b, h, keys, k);
  gather_owned<T, E>(g.v, b, h, keys, v);
  for (int32_t e = map.col_start[tile]; e < map.col_start[tile + 1]; ++e) {
    const auto queries = Partners<E>::queries(map, e, segments);
    gather<T>(g.q, b, h, queries, q);
    gather<T>(g.dy, b, h, queries, dy);
    multiply_scores<W, E>(p, q, k, queries.count, dqk);
    multiply_scores<W, E>(ds, dy, v, queries.count, dv);  // dP
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

// ---- passes ----

// Calls run_pass.operator()<T, E>(pass) for each pass, T the element type, E the edge of the tiles.
template <class X, class F>
void for_each_pass(const X& x, F&& run_pass) {
  dispatch_float(x.q.dtype, [&]<class T>() {
    for (int32_t p = 0; p < x.maps.passes; ++p)
      x.maps.pass[p].edge == kTile ? run_pass.template operator()<T, kTile>(x.maps.pass[p])
                                   : run_pass.template operator()<T, kSmallTile>(x.maps.pass[p]);
  });
}
}  // namespace

void compute(CpuQueue&, const AttentionForward& f) {
  for_each_pass(f, [&]<class T, int E>(const AttentionPass& pass) {
    for_each_tile(f, pass, true, [&](const auto&... tile) { forward_tile<T, E>(f, tile...); });
  });
}

void compute(CpuQueue&, const AttentionBackward& g) {
  dispatch_float(g.q.dtype, [&]<class T>() {
#pragma omp parallel for collapse(2) if (g.y.batch * g.y.time * g.y.heads * g.y.size > \
                                             kParallelElements)
    for (int64_t b = 0; b < g.y.batch; ++b)
      for (int64_t h = 0; h < g.q.heads; ++h) write_delta<T>(g, b, h);
  });
  for_each_pass(g, [&]<class T, int E>(const AttentionPass& pass) {
    for_each_tile(g, pass, true, [&](const auto&... tile) { backward_queries<T, E>(g, tile...); });
    for_each_tile(g, pass, false, [&](const auto&... tile) { backward_keys<T, E>(g, tile...); });
  });
}
}  // namespace weft
