// SPDX-License-Identifier: MIT
// Rung 5: positions lie in slots, in the order that the pattern asks for. A tile is 64 slots, and
// its rows are gathered: dense tiles out of a sparse pattern. The rest is rung 4 forward and rung 3
// backward.
#include "kernels/attention/ladder/cuda/products.cuh"

namespace weft::ladder::cuda {
namespace {
struct ForwardMemory {
  Matrix q, k, v, p;
};

// The scaled scores of a tile; -infinity where the pattern has no pair.
__device__ void scores(Sums& s, const ForwardMemory& m, const RowWords& words, float scale) {
  multiply_transposed(s, m.q, m.k);
  for (int i = 0; i < kEach; ++i)
    for (int j = 0; j < kEach; ++j) {
      const bool attended = words[i] >> (column() + kSide * j) & 1;
      s[i][j] = attended ? s[i][j] * scale : -INFINITY;
    }
}

__device__ void store_forward(const AttentionForward& f, const BlockIndex& at,
                              const int32_t* own_slots, const Sums& y, const RowNumbers& largest,
                              RowNumbers& sum) {
  RowNumbers inverse;
  for (int i = 0; i < kEach; ++i) {
    sum[i] = warp_sum<kSide>(sum[i]);
    inverse[i] = sum[i] == 0 ? 0 : 1 / sum[i];
    const int t = own_slots[first_row() + i];
    if (column() == 0 && t >= 0)
      scalars_of(f.lse, at)[t] = sum[i] == 0 ? -INFINITY : largest[i] + logf(sum[i]);
  }
  store_tile(f.y, at, y, inverse, [&](int r) { return own_slots[r]; });
}

__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ AttentionForward f) {
  extern __shared__ __align__(16) char shared[];
  auto& m = *reinterpret_cast<ForwardMemory*>(shared);
  const BlockIndex at(f.q);
  const Direction d = Direction::query_stationary(f.maps.pass[0].maps[f.maps.map_of(at.b, at.h)]);
  if (at.rank >= d.own_tiles) return;
  const int own = d.schedule[at.rank];
  const int32_t* const own_slots = d.own_order + int64_t{own} * kTile;
  load_tile(m.q, f.q, at, [&](int r) { return own_slots[r]; });

  RowNumbers largest, sum = {};
  for (float& x : largest) x = -INFINITY;
  Sums y = {};
  for (int e = d.start[own]; e < d.start[own + 1]; ++e) {
    const int32_t* const slots = d.other_order + int64_t{d.tile[e]} * kTile;
    __syncthreads();  // the tile before has been read
    load_tile(m.k, f.k, at, [&](int r) { return slots[r]; });
    load_tile(m.v, f.v, at, [&](int r) { return slots[r]; });
    __syncthreads();
    RowWords words;
    for (int i = 0; i < kEach; ++i) words[i] = word_of(d.masks, d.mask[e], first_row() + i);
    Sums s;
    scores(s, m, words, static_cast<float>(f.scale));
    for (int i = 0; i < kEach; ++i) {
      float top = largest[i];
      for (int j = 0; j < kEach; ++j) top = fmaxf(top, s[i][j]);
      top = warp_reduce<kSide>(top, Max{});
      const float shift = top == -INFINITY ? 0 : top, shrink = expf(largest[i] - shift);
      largest[i] = top;
      sum[i] *= shrink;
      for (int j = 0; j < kEach; ++j) y[i][j] *= shrink;
      for (int j = 0; j < kEach; ++j) sum[i] += s[i][j] = expf(s[i][j] - shift);
    }
    put(m.p, s);
    multiply_add(y, m.p, m.v);
  }
  store_forward(f, at, own_slots, y, largest, sum);
}

// x, y: the rows of the block, and those that pass by; queries and dy, or keys and values.
struct BackwardMemory {
  Matrix own_x, own_y, x, y, weights;
};

// dq of 64 queries, or dk and dv of 64 keys. Rows are those of the block, columns the others.
template <bool kQueries>
__global__ void __launch_bounds__(kThreads, 2)
    backward_kernel(const __grid_constant__ AttentionBackward g) {
  extern __shared__ __align__(16) char shared[];
  auto& m = *reinterpret_cast<BackwardMemory*>(shared);
  const HeadsView &own_x = kQueries ? g.q : g.k, &own_y = kQueries ? g.dy : g.v,
                  &x = kQueries ? g.k : g.q, &y = kQueries ? g.v : g.dy;
  const BlockIndex at(g.q);
  const TileMap& map = g.maps.pass[0].maps[g.maps.map_of(at.b, at.h)];
  const Direction d = kQueries ? Direction::query_stationary(map) : Direction::key_stationary(map);
  if (at.rank >= d.own_tiles) return;
  const int own = d.schedule[at.rank];
  const int32_t* const own_slots = d.own_order + int64_t{own} * kTile;
  const auto scale = static_cast<float>(g.scale);
  load_tile(m.own_x, own_x, at, [&](int r) { return own_slots[r]; });
  load_tile(m.own_y, own_y, at, [&](int r) { return own_slots[r]; });

  Sums dx = {}, dv = {};
  for (int e = d.start[own]; e < d.start[own + 1]; ++e) {
    const int32_t* const slots = d.other_order + int64_t{d.tile[e]} * kTile;
    __syncthreads();
    load_tile(m.x, x, at, [&](int r) { return slots[r]; });
    load_tile(m.y, y, at, [&](int r) { return slots[r]; });
    __syncthreads();
    Sums p, ds;
    multiply_transposed(p, m.own_x, m.x);
    multiply_transposed(ds, m.own_y, m.y);
    for (int i = 0; i < kEach; ++i) {
      const uint64_t word = word_of(d.masks, d.mask[e], first_row() + i);
      for (int j = 0; j < kEach; ++j) {
        const int c = column() + kSide * j,
                  query = kQueries ? own_slots[first_row() + i] : slots[c];
        const bool attended = word >> c & 1;
        p[i][j] = attended ? expf(p[i][j] * scale - scalar(g.lse, at, query)) : 0;
        ds[i][j] = attended ? p[i][j] * (ds[i][j] - scalar(g.delta, at, query)) : 0;
      }
    }
    put(m.weights, ds);
    multiply_add(dx, m.weights, m.x);
    if (kQueries) continue;
    put(m.weights, p);
    multiply_add(dv, m.weights, m.y);
  }
  const auto position = [&](int r) { return own_slots[r]; };
  store_tile(kQueries ? g.dq : g.dk, at, dx, {scale, scale, scale, scale}, position);
  if (!kQueries) store_tile(g.dv, at, dv, {1, 1, 1, 1}, position);
}
}  // namespace

void gathered_forward(Queue& queue, const AttentionForward& f, const Pattern&) {
  start(std::get<CudaQueue>(queue), forward_kernel, blocks_for(f.q, f.maps.pass[0].query_tiles, 1),
        kThreads, sizeof(ForwardMemory), f);
}

void gathered_backward(Queue& queue, const AttentionBackward& g, const Pattern&) {
  auto& cuda = std::get<CudaQueue>(queue);
  write_delta(cuda, g);
  start(cuda, backward_kernel<true>, blocks_for(g.q, g.maps.pass[0].query_tiles, 1), kThreads,
        sizeof(BackwardMemory), g);
  start(cuda, backward_kernel<false>, blocks_for(g.q, g.maps.pass[0].key_tiles, 1), kThreads,
        sizeof(BackwardMemory), g);
}
}  // namespace weft::ladder::cuda
