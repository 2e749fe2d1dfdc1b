// SPDX-License-Identifier: MIT
// Rung 6: tensor cores multiply, by mma.sync. Tiles in shared memory are bf16 in a swizzle that
// avoids bank conflicts. Scores, probabilities and sums never leave the registers: the result of
// one product is an operand of the next.
#include "kernels/attention/ladder/cuda/fragments.cuh"

namespace weft::ladder::cuda {
namespace {
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ AttentionForward f) {
  __shared__ __align__(128) char queries[kTileBytes], keys[kTileBytes], values[kTileBytes];
  const BlockIndex at(f.q);
  const Direction d = Direction::query_stationary(f.maps.pass[0].maps[f.maps.map_of(at.b, at.h)]);
  if (at.rank >= d.own_tiles) return;
  const int own = d.schedule[at.rank];
  const int32_t* const own_slots = d.own_order + int64_t{own} * kTile;
  const Rows k = Rows::of(f.k, at.b, at.h), v = Rows::of(f.v, at.b, at.h);
  gather(queries, Rows::of(f.q, at.b, at.h), own_slots);
  __syncthreads();
  Fragments<1, kTile> q;
  load_fragments<1, kTile, kTile>(q, shared_address(queries), warp());

  OnlineSoftmax softmax{static_cast<float>(f.scale) * kLog2E};
  Accumulators<1, kTile> y;
  y.clear();
  for (int e = d.start[own]; e < d.start[own + 1]; ++e) {
    const int32_t* const slots = d.other_order + int64_t{d.tile[e]} * kTile;
    __syncthreads();  // the tile before has been read
    gather(keys, k, slots);
    gather(values, v, slots);
    __syncthreads();
    Accumulators<1, kTile> s;
    mma_abt<bf16, 1, kTile, kTile>(s, q, shared_address(keys), 0);
    hide(flat(s), d, d.mask[e], -INFINITY);
    softmax.apply(flat(s), flat(y));
    Fragments<1, kTile> p;
    round_to_fragments<bf16>(p, s);
    mma_ab<bf16, 1, kTile, kTile>(y, p, shared_address(values), 0);
  }
  const float2 inverse = softmax.finish(scalars_of(f.lse, at), own_slots);
  store_rows(Rows::of(f.y, at.b, at.h), own_slots, flat(y), inverse);
}

// lse and delta of the queries in 64 slots.
__device__ void load_scalars(float* lse, float* delta, const AttentionBackward& g,
                             const BlockIndex& at, const int32_t* slots) {
  if (threadIdx.x >= kTile) return;
  lse[threadIdx.x] = scalar(g.lse, at, slots[threadIdx.x]);
  delta[threadIdx.x] = scalar(g.delta, at, slots[threadIdx.x]);
}

// dq of 64 queries, or dk and dv of 64 keys. x, y: the rows that pass by; keys and values, or
// queries and dy.
template <bool kQueries>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const __grid_constant__ AttentionBackward g) {
  __shared__ __align__(128) char x_tile[kTileBytes], y_tile[kTileBytes];
  __shared__ float lse[kTile], delta[kTile];
  const BlockIndex at(g.q);
  const TileMap& map = g.maps.pass[0].maps[g.maps.map_of(at.b, at.h)];
  const Direction d = kQueries ? Direction::query_stationary(map) : Direction::key_stationary(map);
  if (at.rank >= d.own_tiles) return;
  const int own = d.schedule[at.rank];
  const int32_t* const own_slots = d.own_order + int64_t{own} * kTile;
  const Rows x = Rows::of(kQueries ? g.k : g.q, at.b, at.h),
             y = Rows::of(kQueries ? g.v : g.dy, at.b, at.h);
  gather(x_tile, Rows::of(kQueries ? g.q : g.k, at.b, at.h), own_slots);
  gather(y_tile, Rows::of(kQueries ? g.dy : g.v, at.b, at.h), own_slots);
  if (kQueries) load_scalars(lse, delta, g, at, own_slots);
  __syncthreads();
  Fragments<1, kTile> own_x, own_y;
  load_fragments<1, kTile, kTile>(own_x, shared_address(x_tile), warp());
  load_fragments<1, kTile, kTile>(own_y, shared_address(y_tile), warp());

  Accumulators<1, kTile> dx, dv;
  dx.clear(), dv.clear();
  for (int e = d.start[own]; e < d.start[own + 1]; ++e) {
    const int32_t* const slots = d.other_order + int64_t{d.tile[e]} * kTile;
    __syncthreads();
    gather(x_tile, x, slots);
    gather(y_tile, y, slots);
    if (!kQueries) load_scalars(lse, delta, g, at, slots);
    __syncthreads();
    Accumulators<1, kTile> p, ds;
    mma_abt<bf16, 1, kTile, kTile>(p, own_x, shared_address(x_tile), 0);
    mma_abt<bf16, 1, kTile, kTile>(ds, own_y, shared_address(y_tile), 0);
    differentiate<kQueries>(flat(p), flat(ds), d, d.mask[e], static_cast<float>(g.scale) * kLog2E,
                            lse, delta);
    Fragments<1, kTile> weights;
    round_to_fragments<bf16>(weights, ds);
    mma_ab<bf16, 1, kTile, kTile>(dx, weights, shared_address(x_tile), 0);
    if (kQueries) continue;
    round_to_fragments<bf16>(weights, p);
    mma_ab<bf16, 1, kTile, kTile>(dv, weights, shared_address(y_tile), 0);
  }
  const auto scale = static_cast<float>(g.scale);
  store_rows(Rows::of(kQueries ? g.dq : g.dk, at.b, at.h), own_slots, flat(dx), {scale, scale});
  if (!kQueries) store_rows(Rows::of(g.dv, at.b, at.h), own_slots, flat(dv), {1, 1});
}
}  // namespace

void mma_forward(Queue& queue, const AttentionForward& f, const Pattern&) {
  start(std::get<CudaQueue>(queue), forward_kernel, blocks_for(f.q, f.maps.pass[0].query_tiles, 1),
        kThreads, 0, f);
}

void mma_backward(Queue& queue, const AttentionBackward& g, const Pattern&) {
  auto& cuda = std::get<CudaQueue>(queue);
  const AttentionPass& pass = g.maps.pass[0];
  write_delta(cuda, g);
  start(cuda, backward_kernel<true>, blocks_for(g.q, pass.query_tiles, 1), kThreads, 0, g);
  start(cuda, backward_kernel<false>, blocks_for(g.q, pass.key_tiles, 1), kThreads, 0, g);
}
}  // namespace weft::ladder::cuda
