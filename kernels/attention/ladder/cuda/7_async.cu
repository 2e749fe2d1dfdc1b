// SPDX-License-Identifier: MIT
// Rung 7: two stages of shared memory. While a tile is worked on, cp.async brings the next one; no
// thread waits for memory unless the tensor cores are faster. The arithmetic is that of rung 6.
#include "kernels/attention/ladder/cuda/fragments.cuh"

namespace weft::ladder::cuda {
namespace {
// What passes by: keys and values, or queries and dy with their lse and delta.
struct Stage {
  char x[kTileBytes], y[kTileBytes];
  float lse[kTile], delta[kTile];
};

__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ AttentionForward f) {
  __shared__ __align__(128) Stage stages[2];
  const BlockIndex at(f.q);
  const Direction d = Direction::query_stationary(f.maps.pass[0].maps[f.maps.map_of(at.b, at.h)]);
  if (at.rank >= d.own_tiles) return;
  const int own = d.schedule[at.rank], begin = d.start[own], end = d.start[own + 1];
  const int32_t* const own_slots = d.own_order + int64_t{own} * kTile;
  const Rows k = Rows::of(f.k, at.b, at.h), v = Rows::of(f.v, at.b, at.h);
  // Starts the copies of an entry's tile.
  const auto fetch = [&](int e) {
    if (e < end) {
      const int32_t* const slots = d.other_order + int64_t{d.tile[e]} * kTile;
      gather_async(shared_address(stages[e % 2].x), k, slots);
      gather_async(shared_address(stages[e % 2].y), v, slots);
    }
    cp_async_commit_group();
  };
  const uint32_t queries = shared_address(stages[(begin + 1) % 2].x);  // until the second fetch
  gather_async(queries, Rows::of(f.q, at.b, at.h), own_slots);
  fetch(begin);
  cp_async_wait_all();
  __syncthreads();
  Fragments<1, kTile> q;
  load_fragments<1, kTile, kTile>(q, queries, warp());

  OnlineSoftmax softmax{static_cast<float>(f.scale) * kLog2E};
  Accumulators<1, kTile> y;
  y.clear();
  for (int e = begin; e < end; ++e) {
    __syncthreads();  // the other stage has been read
    fetch(e + 1);
    cp_async_wait_all_but_last();
    __syncthreads();
    Accumulators<1, kTile> s;
    mma_abt<bf16, 1, kTile, kTile>(s, q, shared_address(stages[e % 2].x), 0);
    hide(flat(s), d, d.mask[e], -INFINITY);
    softmax.apply(flat(s), flat(y));
    Fragments<1, kTile> p;
    round_to_fragments<bf16>(p, s);
    mma_ab<bf16, 1, kTile, kTile>(y, p, shared_address(stages[e % 2].y), 0);
  }
  const float2 inverse = softmax.finish(scalars_of(f.lse, at), own_slots);
  store_rows(Rows::of(f.y, at.b, at.h), own_slots, flat(y), inverse);
}

// Starts the copies of lse and delta of the queries in 64 slots.
__device__ __forceinline__ void fetch_scalars(Stage& to, const AttentionBackward& g,
                                              const BlockIndex& at, const int32_t* slots) {
  if (threadIdx.x >= kTile) return;
  const int r = static_cast<int>(threadIdx.x), t = slots[r];
  cp_async_4(shared_address(&to.lse[r]), scalars_of(g.lse, at) + max(t, 0), t >= 0);
  cp_async_4(shared_address(&to.delta[r]), scalars_of(g.delta, at) + max(t, 0), t >= 0);
}

// dq of 64 queries, or dk and dv of 64 keys.
template <bool kQueries>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const __grid_constant__ AttentionBackward g) {
  __shared__ __align__(128) Stage stages[2];
  const BlockIndex at(g.q);
  const TileMap& map = g.maps.pass[0].maps[g.maps.map_of(at.b, at.h)];
  const Direction d = kQueries ? Direction::query_stationary(map) : Direction::key_stationary(map);
  if (at.rank >= d.own_tiles) return;
  const int own = d.schedule[at.rank], begin = d.start[own], end = d.start[own + 1];
  const int32_t* const own_slots = d.own_order + int64_t{own} * kTile;
  const Rows x = Rows::of(kQueries ? g.k : g.q, at.b, at.h),
             y = Rows::of(kQueries ? g.v : g.dy, at.b, at.h);
  const auto fetch = [&](int e) {
    if (e < end) {
      const int32_t* const slots = d.other_order + int64_t{d.tile[e]} * kTile;
      gather_async(shared_address(stages[e % 2].x), x, slots);
      gather_async(shared_address(stages[e % 2].y), y, slots);
      fetch_scalars(stages[e % 2], g, at, kQueries ? own_slots : slots);
    }
    cp_async_commit_group();
  };
  Stage& first = stages[(begin + 1) % 2];
  gather_async(shared_address(first.x), Rows::of(kQueries ? g.q : g.k, at.b, at.h), own_slots);
  gather_async(shared_address(first.y), Rows::of(kQueries ? g.dy : g.v, at.b, at.h), own_slots);
  fetch(begin);
  cp_async_wait_all();
  __syncthreads();
  Fragments<1, kTile> own_x, own_y;
  load_fragments<1, kTile, kTile>(own_x, shared_address(first.x), warp());
  load_fragments<1, kTile, kTile>(own_y, shared_address(first.y), warp());

  Accumulators<1, kTile> dx, dv;
  dx.clear(), dv.clear();
  for (int e = begin; e < end; ++e) {
    __syncthreads();
    fetch(e + 1);
    cp_async_wait_all_but_last();
    __syncthreads();
    Stage& stage = stages[e % 2];
    Accumulators<1, kTile> p, ds;
    mma_abt<bf16, 1, kTile, kTile>(p, own_x, shared_address(stage.x), 0);
    mma_abt<bf16, 1, kTile, kTile>(ds, own_y, shared_address(stage.y), 0);
    differentiate<kQueries>(flat(p), flat(ds), d, d.mask[e], static_cast<float>(g.scale) * kLog2E,
                            stage.lse, stage.delta);
    Fragments<1, kTile> weights;
    round_to_fragments<bf16>(weights, ds);
    mma_ab<bf16, 1, kTile, kTile>(dx, weights, shared_address(stage.x), 0);
    if (kQueries) continue;
    round_to_fragments<bf16>(weights, p);
    mma_ab<bf16, 1, kTile, kTile>(dv, weights, shared_address(stage.y), 0);
  }
  const auto scale = static_cast<float>(g.scale);
  store_rows(Rows::of(kQueries ? g.dq : g.dk, at.b, at.h), own_slots, flat(dx), {scale, scale});
  if (!kQueries) store_rows(Rows::of(g.dv, at.b, at.h), own_slots, flat(dv), {1, 1});
}
}  // namespace

void async_forward(Queue& queue, const AttentionForward& f, const Pattern&) {
  start(std::get<CudaQueue>(queue), forward_kernel, blocks_for(f.q, f.maps.pass[0].query_tiles, 1),
        kThreads, 0, f);
}

void async_backward(Queue& queue, const AttentionBackward& g, const Pattern&) {
  auto& cuda = std::get<CudaQueue>(queue);
  const AttentionPass& pass = g.maps.pass[0];
  write_delta(cuda, g);
  start(cuda, backward_kernel<true>, blocks_for(g.q, pass.query_tiles, 1), kThreads, 0, g);
  start(cuda, backward_kernel<false>, blocks_for(g.q, pass.key_tiles, 1), kThreads, 0, g);
}
}  // namespace weft::ladder::cuda
