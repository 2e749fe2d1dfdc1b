// SPDX-License-Identifier: MIT
// Rung 2: a thread block owns 64 queries and goes through the keys 64 at a time. Both lie in shared
// memory: a row is read once for 64 rows of the other side. Tiles are computed whole and masked
// afterwards. The backward pass is one kernel, started twice: for tiles of queries and of keys.
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

__device__ void store_forward(const AttentionForward& f, const BlockIndex& at, int first,
                              const Sums& y, const RowNumbers& largest, RowNumbers& sum) {
  RowNumbers inverse;
  for (int i = 0; i < kEach; ++i) {
    sum[i] = warp_sum<kSide>(sum[i]);
    inverse[i] = sum[i] == 0 ? 0 : 1 / sum[i];
    const int t = first + first_row() + i;
    if (column() == 0 && t < f.q.time)
      scalars_of(f.lse, at)[t] = sum[i] == 0 ? -INFINITY : largest[i] + logf(sum[i]);
  }
  store_tile(f.y, at, y, inverse, [&](int r) { return first + r; });
}

__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ AttentionForward f, const PairBits pairs) {
  extern __shared__ __align__(16) char shared[];
  auto& m = *reinterpret_cast<ForwardMemory*>(shared);
  const BlockIndex at(f.q);
  const int first = at.rank * kTile, tiles = static_cast<int>(f.k.time + kTile - 1) / kTile;
  const int64_t group = f.maps.map_of(at.b, at.h);
  load_tile(m.q, f.q, at, [&](int r) { return first + r; });
  // Calls tile(scores) for each tile of keys.
  const auto for_each_tile = [&](bool values, auto&& tile) {
    for (int k = 0; k < tiles; ++k) {
      __syncthreads();  // the tile before has been read
      load_tile(m.k, f.k, at, [&](int r) { return k * kTile + r; });
      if (values) load_tile(m.v, f.v, at, [&](int r) { return k * kTile + r; });
      __syncthreads();
      RowWords words;
      for (int i = 0; i < kEach; ++i) words[i] = pairs.word(group, first + first_row() + i, k);
      Sums s;
      scores(s, m, words, static_cast<float>(f.scale));
      tile(s);
    }
  };

  RowNumbers largest, sum = {};
  for (float& x : largest) x = -INFINITY;
  for_each_tile(false, [&](const Sums& s) {
    for (int i = 0; i < kEach; ++i)
      for (int j = 0; j < kEach; ++j) largest[i] = fmaxf(largest[i], s[i][j]);
  });
  for (float& x : largest) x = warp_reduce<kSide>(x, Max{});
  Sums y = {};
  for_each_tile(true, [&](Sums& s) {
    for (int i = 0; i < kEach; ++i) {
      const float top = largest[i] == -INFINITY ? 0 : largest[i];
      for (int j = 0; j < kEach; ++j) sum[i] += s[i][j] = expf(s[i][j] - top);
    }
    put(m.p, s);
    multiply_add(y, m.p, m.v);
  });
  store_forward(f, at, first, y, largest, sum);
}

// x, y: the rows of the block, and those that pass by; queries and dy, or keys and values.
struct BackwardMemory {
  Matrix own_x, own_y, x, y, weights;
};

// dq of 64 queries, or dk and dv of 64 keys. Rows are those of the block, columns the others.
template <bool kQueries>
__global__ void __launch_bounds__(kThreads, 2)
    backward_kernel(const __grid_constant__ AttentionBackward g, const PairBits pairs) {
  extern __shared__ __align__(16) char shared[];
  auto& m = *reinterpret_cast<BackwardMemory*>(shared);
  const HeadsView &own_x = kQueries ? g.q : g.k, &own_y = kQueries ? g.dy : g.v,
                  &x = kQueries ? g.k : g.q, &y = kQueries ? g.v : g.dy;
  const BlockIndex at(g.q);
  const int first = at.rank * kTile, tiles = static_cast<int>(x.time + kTile - 1) / kTile;
  const int64_t group = g.maps.map_of(at.b, at.h);
  const auto scale = static_cast<float>(g.scale);
  load_tile(m.own_x, own_x, at, [&](int r) { return first + r; });
  load_tile(m.own_y, own_y, at, [&](int r) { return first + r; });

  Sums dx = {}, dv = {};
  for (int tile = 0; tile < tiles; ++tile) {
    __syncthreads();
    load_tile(m.x, x, at, [&](int r) { return tile * kTile + r; });
    load_tile(m.y, y, at, [&](int r) { return tile * kTile + r; });
    __syncthreads();
    Sums p, ds;
    multiply_transposed(p, m.own_x, m.x);
    multiply_transposed(ds, m.own_y, m.y);
    for (int i = 0; i < kEach; ++i)
      for (int j = 0; j < kEach; ++j) {
        const int own = first + first_row() + i, other = tile * kTile + column() + kSide * j,
                  query = kQueries ? own : other, key = kQueries ? other : own;
        const bool attended = key < g.k.time && pairs.attends(group, query, key);
        p[i][j] = attended ? expf(p[i][j] * scale - scalar(g.lse, at, query)) : 0;
        ds[i][j] = attended ? p[i][j] * (ds[i][j] - scalar(g.delta, at, query)) : 0;
      }
    put(m.weights, ds);
    multiply_add(dx, m.weights, m.x);
    if (kQueries) continue;
    put(m.weights, p);
    multiply_add(dv, m.weights, m.y);
  }
  const auto position = [&](int r) { return first + r; };
  store_tile(kQueries ? g.dq : g.dk, at, dx, {scale, scale, scale, scale}, position);
  if (!kQueries) store_tile(g.dv, at, dv, {1, 1, 1, 1}, position);
}
}  // namespace

void shared_forward(Queue& queue, const AttentionForward& f, const Pattern& pattern) {
  start(std::get<CudaQueue>(queue), forward_kernel, blocks_for(f.q, f.q.time, kTile), kThreads,
        sizeof(ForwardMemory), f, pattern.bits);
}

void shared_backward(Queue& queue, const AttentionBackward& g, const Pattern& pattern) {
  auto& cuda = std::get<CudaQueue>(queue);
  write_delta(cuda, g);
  start(cuda, backward_kernel<true>, blocks_for(g.q, g.q.time, kTile), kThreads,
        sizeof(BackwardMemory), g, pattern.bits);
  start(cuda, backward_kernel<false>, blocks_for(g.q, g.k.time, kTile), kThreads,
        sizeof(BackwardMemory), g, pattern.bits);
}
}  // namespace weft::ladder::cuda
