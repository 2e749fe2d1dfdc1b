// SPDX-License-Identifier: MIT
// Sparse attention on the CPU: the definition, and what small models train with. Passes run one after the
// other; in a pass each (batch, head, tile) is one task that owns its outputs, so that the bits do not depend
// on the number of threads. A tile's rows are gathered into contiguous blocks and every product is one
// multiply_add(), whose inner loop runs along the last axis.
#include "kernels/attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/attention_check.h"
#include "kernels/cpu.h"

namespace weft {
namespace {

using std::int32_t;
using std::int64_t;
using std::uint64_t;

// The rows of x that E slots, a tile of edge E, name; zeros for empty slots.
template <class T, int E>
void gather(const HeadsView& x, int64_t b, int64_t h, const int32_t* slots, wide_t<T>* out /* (E, size) */) {
  for (int r = 0; r < E; ++r, out += x.size) {
    if (slots[r] < 0) {
      std::fill(out, out + x.size, wide_t<T>(0));
    } else {
      const T* row = x.row<const T>(b, slots[r], h);
      for (int64_t d = 0; d < x.size; ++d) out[d] = static_cast<wide_t<T>>(row[d]);
    }
  }
}

template <class W, int E>
void transpose(const W* in /* (E, size) */, int64_t size, W* out /* (size, E) */) {
  for (int64_t d = 0; d < size; ++d)
    for (int r = 0; r < E; ++r) out[d * E + r] = in[r * size + d];
}

// Stores factor * in, or adds it to what an earlier pass left.
template <class T, int E>
void scatter(const HeadsView& x, int64_t b, int64_t h, const int32_t* slots, const wide_t<T>* in,
             wide_t<T> factor, bool add) {
  for (int r = 0; r < E; ++r, in += x.size) {
    if (slots[r] < 0) continue;
    T* row = x.row<T>(b, slots[r], h);
    if (add) {
      for (int64_t d = 0; d < x.size; ++d)
        row[d] = static_cast<T>(static_cast<wide_t<T>>(row[d]) + in[d] * factor);
    } else {
      for (int64_t d = 0; d < x.size; ++d) row[d] = static_cast<T>(in[d] * factor);
    }
  }
}

// c (E, n) += a (E, k) b (k, n), four terms at a time; terms with a == 0 (masked pairs) are skipped by fours.
template <class W, int E>
void multiply_add(W* c, const W* a, const W* b, int64_t k, int64_t n) {
  for (int r = 0; r < E; ++r, c += n, a += k) {
    for (int64_t i = 0; i + 4 <= k; i += 4) {
      const W a0 = a[i], a1 = a[i + 1], a2 = a[i + 2], a3 = a[i + 3];
      if (a0 == 0 && a1 == 0 && a2 == 0 && a3 == 0) continue;
      const W *b0 = b + i * n, *b1 = b0 + n, *b2 = b1 + n, *b3 = b2 + n;
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) c[j] += (a0 * b0[j] + a1 * b1[j]) + (a2 * b2[j] + a3 * b3[j]);
    }
    for (int64_t i = k - k % 4; i < k; ++i)
      for (int64_t j = 0; j < n; ++j) c[j] += a[i] * b[i * n + j];
  }
}

// c (E, E) = a (E, k) times the transpose of b (E, k), which is left in `bt`.
template <class W, int E>
void multiply_transposed(W* c, const W* a, const W* b, W* bt, int64_t k) {
  transpose<W, E>(b, k, bt);
  std::fill(c, c + E * E, W(0));
  multiply_add<W, E>(c, a, bt, k, E);
}

// The segment numbers of the positions in E slots; -1 where there is none.
template <int E>
struct SlotSegments {
  int32_t number[E];
  bool given;

  SlotSegments(const TensorView& segments, int64_t b, const int32_t* slots) : given(segments.data) {
    if (!given) return;
    const int32_t* row = segments.as<int32_t>() + b * segments.shape[1];
    for (int r = 0; r < E; ++r) number[r] = slots[r] < 0 ? -1 : row[slots[r]];
  }
};

// Which pairs of a tile are attended, a word of bits for each row: its mask, and with segments no pair of
// different or negative numbers.
template <int E>
struct Attended {
  uint64_t word[E];

  Attended(const uint64_t* masks, int32_t mask, const SlotSegments<E>& rows, const SlotSegments<E>& columns) {
    for (int r = 0; r < E; ++r)
      word[r] = mask < 0 ? ~uint64_t{0} >> (64 - E) : masks[static_cast<int64_t>(mask) * E + r];
    if (!rows.given) return;
    for (int r = 0; r < E; ++r)
      for (int c = 0; c < E; ++c)
        if (rows.number[r] < 0 || rows.number[r] != columns.number[c]) word[r] &= ~(uint64_t{1} << c);
  }
};

template <class W, int E>
struct Blocks {  // one thread's blocks, each (E, columns)
  std::vector<W> memory;
  W* next = nullptr;
  explicit Blocks(int64_t columns) : memory(static_cast<std::size_t>(columns * E)), next(memory.data()) {}
  W* take(int64_t columns) {
    W* block = next;
    next += columns * E;
    return block;
  }
};

// One tile of scores into probabilities relative to the running maximum; the sums so far are rescaled to it.
template <class W, int E>
struct OnlineSoftmax {
  W maximum[E], sum[E];

  OnlineSoftmax() {
    std::fill(maximum, maximum + E, -std::numeric_limits<W>::infinity());
    std::fill(sum, sum + E, W(0));
  }
  // Goes on from a finished row: y is its sum relative to e^lse, and its weights add up to 1.
  void resume(int r, W lse) {
    maximum[r] = lse;
    sum[r] = std::isinf(lse) ? W(0) : W(1);
  }
  void row(int r, W* s /* (E): scores in, probabilities out */, uint64_t attended, W scale, W* y,
           int64_t dv) {
    constexpr W kNone = -std::numeric_limits<W>::infinity();
    for (int k = 0; k < E; ++k) s[k] = attended >> k & 1 ? s[k] * scale : kNone;
    const W top = std::max(maximum[r], max_of<W>(E, [=](int64_t k) { return s[k]; }));
    if (top > maximum[r]) {
      const W shrink = std::exp(maximum[r] - top);
      sum[r] *= shrink;
      for (int64_t d = 0; d < dv; ++d) y[d] *= shrink;
      maximum[r] = top;
    }
    const W shift = top == kNone ? W(0) : top;  // no key so far: e^-inf = 0
    for (int k = 0; k < E; ++k) s[k] = exp_of(s[k] - shift);
    sum[r] += sum_of<W>(E, [=](int64_t k) { return s[k]; });
  }
};

template <class T, int E>
void forward_tile(const AttentionForward& f, const TileMap& map, int64_t b, int64_t h, int32_t tile) {
  using W = wide_t<T>;
  if (map.accumulate && map.row_start[tile] == map.row_start[tile + 1]) return;
  const int64_t dqk = f.q.size, dv = f.v.size;
  const int32_t* queries = map.query_order + static_cast<int64_t>(tile) * E;
  const SlotSegments<E> query_segments(f.segments.queries, b, queries);
  Blocks<W, E> blocks(3 * dqk + 2 * dv + E);
  W *q = blocks.take(dqk), *k = blocks.take(dqk), *kt = blocks.take(dqk), *v = blocks.take(dv);
  W *p = blocks.take(E), *y = blocks.take(dv);
  W* lse = f.lse.as<W>() + (b * f.q.heads + h) * f.q.time;
  OnlineSoftmax<W, E> softmax;
  if (map.accumulate) {
    gather<T, E>(f.y, b, h, queries, y);
    for (int r = 0; r < E; ++r)
      if (queries[r] >= 0) softmax.resume(r, lse[queries[r]]);
  }
  gather<T, E>(f.q, b, h, queries, q);
  for (int32_t e = map.row_start[tile]; e < map.row_start[tile + 1]; ++e) {
    const int32_t* keys = map.key_order + static_cast<int64_t>(map.row_tile[e]) * E;
    const Attended<E> attended(map.masks, map.row_mask[e], query_segments, {f.segments.keys, b, keys});
    gather<T, E>(f.k, b, h, keys, k);
    gather<T, E>(f.v, b, h, keys, v);
    multiply_transposed<W, E>(p, q, k, kt, dqk);
    for (int r = 0; r < E; ++r)
      softmax.row(r, p + r * E, attended.word[r], static_cast<W>(f.scale), y + r * dv, dv);
    multiply_add<W, E>(y, p, v, E, dv);
  }
  for (int r = 0; r < E; ++r) {
    const W sum = softmax.sum[r];  // 0: the row attends to nothing
    for (int64_t d = 0; d < dv; ++d) y[r * dv + d] = sum == 0 ? W(0) : y[r * dv + d] / sum;
    if (queries[r] >= 0) lse[queries[r]] = softmax.maximum[r] + std::log(sum);
  }
  scatter<T, E>(f.y, b, h, queries, y, W(1), false);
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
  for (int r = 0; r < E; ++r) out[r] = slots[r] < 0 ? W(0) : in[slots[r]];
}

// Walks a row of tiles: dq_i = scale * sum_j ds_ij k_j.
template <class T, int E>
void backward_row(const AttentionBackward& g, const TileMap& map, int64_t b, int64_t h, int32_t tile) {
  using W = wide_t<T>;
  if (map.accumulate && map.row_start[tile] == map.row_start[tile + 1]) return;
  const int64_t dqk = g.q.size, dv = g.v.size;
  const W scale = static_cast<W>(g.scale);
  const int32_t* queries = map.query_order + static_cast<int64_t>(tile) * E;
  const SlotSegments<E> query_segments(g.segments.queries, b, queries);
  Blocks<W, E> blocks(4 * dqk + 3 * dv + 2 * E);
  W *q = blocks.take(dqk), *k = blocks.take(dqk), *kt = blocks.take(dqk), *dq = blocks.take(dqk);
  W *dy = blocks.take(dv), *v = blocks.take(dv), *vt = blocks.take(dv);
  W *s = blocks.take(E), *ds = blocks.take(E), lse[E], delta[E];
  gather<T, E>(g.q, b, h, queries, q);
  gather<T, E>(g.dy, b, h, queries, dy);
  gather_scalars<W, E>(g.lse, b * g.q.heads + h, queries, lse);
  gather_scalars<W, E>(g.delta, b * g.q.heads + h, queries, delta);
  for (int32_t e = map.row_start[tile]; e < map.row_start[tile + 1]; ++e) {
    const int32_t* keys = map.key_order + static_cast<int64_t>(map.row_tile[e]) * E;
    const Attended<E> attended(map.masks, map.row_mask[e], query_segments, {g.segments.keys, b, keys});
    gather<T, E>(g.k, b, h, keys, k);
    gather<T, E>(g.v, b, h, keys, v);
    multiply_transposed<W, E>(s, q, k, kt, dqk);
    multiply_transposed<W, E>(ds, dy, v, vt, dv);
    for (int r = 0; r < E; ++r) {
      W *s_row = s + r * E, *ds_row = ds + r * E;
      for (int c = 0; c < E; ++c) {
        const W p = exp_of(scale * s_row[c] - lse[r]);
        ds_row[c] = attended.word[r] >> c & 1 ? p * (ds_row[c] - delta[r]) : W(0);
      }
    }
    multiply_add<W, E>(dq, ds, k, E, dqk);
  }
  scatter<T, E>(g.dq, b, h, queries, dq, scale, map.accumulate);
}

// Walks a column of tiles, all of it transposed (rows are keys): dv_j = sum_i p_ij dy_i,
// dk_j = scale * sum_i ds_ij q_i.
template <class T, int E>
void backward_column(const AttentionBackward& g, const TileMap& map, int64_t b, int64_t h, int32_t tile) {
  using W = wide_t<T>;
  if (map.accumulate && map.col_start[tile] == map.col_start[tile + 1]) return;
  const int64_t dqk = g.q.size, dv = g.v.size;
  const W scale = static_cast<W>(g.scale);
  const int32_t* keys = map.key_order + static_cast<int64_t>(tile) * E;
  const SlotSegments<E> key_segments(g.segments.keys, b, keys);
  Blocks<W, E> blocks(4 * dqk + 4 * dv + 2 * E);
  W *k = blocks.take(dqk), *q = blocks.take(dqk), *qt = blocks.take(dqk), *dk = blocks.take(dqk);
  W *v = blocks.take(dv), *dy = blocks.take(dv), *dyt = blocks.take(dv), *dv_sum = blocks.take(dv);
  W *p = blocks.take(E), *ds = blocks.take(E), lse[E], delta[E];
  gather<T, E>(g.k, b, h, keys, k);
  gather<T, E>(g.v, b, h, keys, v);
  for (int32_t e = map.col_start[tile]; e < map.col_start[tile + 1]; ++e) {
    const int32_t* queries = map.query_order + static_cast<int64_t>(map.col_tile[e]) * E;
    const Attended<E> attended(map.masks_transposed, map.col_mask[e], key_segments,
                               {g.segments.queries, b, queries});
    gather<T, E>(g.q, b, h, queries, q);
    gather<T, E>(g.dy, b, h, queries, dy);
    gather_scalars<W, E>(g.lse, b * g.q.heads + h, queries, lse);
    gather_scalars<W, E>(g.delta, b * g.q.heads + h, queries, delta);
    multiply_transposed<W, E>(p, k, q, qt, dqk);
    multiply_transposed<W, E>(ds, v, dy, dyt, dv);
    for (int r = 0; r < E; ++r) {
      W *p_row = p + r * E, *ds_row = ds + r * E;
      for (int c = 0; c < E; ++c) {
        const bool on = attended.word[r] >> c & 1;
        const W probability = exp_of(scale * p_row[c] - lse[c]);
        p_row[c] = on ? probability : W(0);
        ds_row[c] = on ? probability * (ds_row[c] - delta[c]) : W(0);
      }
    }
    multiply_add<W, E>(dv_sum, p, dy, E, dv);
    multiply_add<W, E>(dk, ds, q, E, dqk);
  }
  scatter<T, E>(g.dk, b, h, keys, dk, scale, map.accumulate);
  scatter<T, E>(g.dv, b, h, keys, dv_sum, W(1), map.accumulate);
}

template <class T>
void decode_row(const AttentionDecode& d, int64_t b, int64_t h) {
  using W = wide_t<T>;
  const int32_t group = d.group_of_head[h];
  const int32_t *keys = d.keys + d.key_start[group], *end = d.keys + d.key_start[group + 1];
  const int64_t first = d.first_row ? d.first_row[h] : 0;
  std::vector<W> p(static_cast<std::size_t>(end - keys)), y(static_cast<std::size_t>(d.v.size));
  const T* q = d.q.row<const T>(b, 0, h);
  W top = -std::numeric_limits<W>::infinity(), sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const T* k = d.k.row<const T>(b, first + keys[i], h);
    W s = 0;
    for (int64_t c = 0; c < d.q.size; ++c) s += static_cast<W>(q[c]) * static_cast<W>(k[c]);
    p[i] = static_cast<W>(d.scale) * s;
    top = std::max(top, p[i]);
  }
  for (std::size_t i = 0; i < p.size(); ++i) {
    p[i] = std::exp(p[i] - top);
    sum += p[i];
    const T* v = d.v.row<const T>(b, first + keys[i], h);
    for (int64_t c = 0; c < d.v.size; ++c) y[static_cast<std::size_t>(c)] += p[i] * static_cast<W>(v[c]);
  }
  T* out = d.y.row<T>(b, 0, h);
  for (int64_t c = 0; c < d.v.size; ++c)
    out[c] = static_cast<T>(sum == 0 ? W(0) : y[static_cast<std::size_t>(c)] / sum);
}

int64_t elements_of(const HeadsView& x) { return x.batch * x.time * x.heads * x.size; }

// Calls task(map, b, h, rank) for every (batch, head) of q and every rank below the largest number of tiles.
template <class F>
void for_each_tile(const AttentionMaps& maps, const AttentionPass& pass, const HeadsView& q, int32_t tiles,
                   F&& task) {
#pragma omp parallel for collapse(3) schedule(dynamic) if (elements_of(q) > kParallelElements)
  for (int64_t b = 0; b < q.batch; ++b)
    for (int32_t rank = 0; rank < tiles; ++rank)
      for (int64_t h = 0; h < q.heads; ++h) task(pass.maps[maps.group_of_head[h]], b, h, rank);
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

void run(CpuQueue&, const AttentionDecode& d) {
  check(d);
  dispatch_float(d.q.dtype, [&]<class T>() {
#pragma omp parallel for collapse(2) if (elements_of(d.k) > kParallelElements)
    for (int64_t b = 0; b < d.q.batch; ++b)
      for (int64_t h = 0; h < d.q.heads; ++h) decode_row<T>(d, b, h);
  });
}

}  // namespace weft
