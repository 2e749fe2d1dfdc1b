// SPDX-License-Identifier: MIT
// Rung 4: the online softmax (Dao et al. 2022, arXiv 2205.14135, algorithm 1). Sums are relative to
// the largest score so far and shrink when a larger one comes, so each tile is met once: two
// products instead of three. The backward pass knows lse and met each tile once already.
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
    forward_kernel(const __grid_constant__ AttentionForward f) {
  extern __shared__ __align__(16) char shared[];
  auto& m = *reinterpret_cast<ForwardMemory*>(shared);
  const BlockIndex at(f.q);
  const Direction d = Direction::query_stationary(f.maps.pass[0].maps[f.maps.map_of(at.b, at.h)]);
  if (at.rank >= d.own_tiles) return;
  const int own = d.schedule[at.rank], first = own * kTile;
  load_tile(m.q, f.q, at, [&](int r) { return first + r; });

  RowNumbers largest, sum = {};
  for (float& x : largest) x = -INFINITY;
  Sums y = {};
  for (int e = d.start[own]; e < d.start[own + 1]; ++e) {
    const int keys = d.tile[e] * kTile;
    __syncthreads();  // the tile before has been read
    load_tile(m.k, f.k, at, [&](int r) { return keys + r; });
    load_tile(m.v, f.v, at, [&](int r) { return keys + r; });
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
  store_forward(f, at, first, y, largest, sum);
}
}  // namespace

void online_forward(Queue& queue, const AttentionForward& f, const Pattern&) {
  start(std::get<CudaQueue>(queue), forward_kernel, blocks_for(f.q, f.maps.pass[0].query_tiles, 1),
        kThreads, sizeof(ForwardMemory), f);
}
}  // namespace weft::ladder::cuda
