// SPDX-License-Identifier: MIT
// Rung 8: a backward pass that meets each tile once, with five products instead of seven. A block
// owns 64 keys. Several blocks share a tile of queries, and here they add to its dQ by float
// atomics. These come in another order in every run, and float addition is not associative: the
// bits of dQ differ from run to run. No other kernel of this repository does so.
#include "kernels/attention/ladder/cuda/fragments.cuh"
#include "kernels/memory.h"

#include <cstddef>

namespace weft::ladder::cuda {
namespace {
// What passes by: queries and dy, their lse and delta.
struct Stage {
  char q[kTileBytes], dy[kTileBytes];
  float lse[kTile], delta[kTile];
};

struct SharedMemory {
  char keys[kTileBytes], ds[kTileBytes];
  Stage stages[2];
};

// Starts the copies of what lies in 64 slots.
__device__ __forceinline__ void fetch_stage(Stage& to, const AttentionBackward& g,
                                            const BlockIndex& at, const int32_t* slots) {
  gather_async(shared_address(to.q), Rows::of(g.q, at.b, at.h), slots);
  gather_async(shared_address(to.dy), Rows::of(g.dy, at.b, at.h), slots);
  const int r = static_cast<int>(threadIdx.x) % kTile, t = slots[r];
  cp_async_4(shared_address(&to.lse[r]), scalars_of(g.lse, at) + max(t, 0), t >= 0);
  cp_async_4(shared_address(&to.delta[r]), scalars_of(g.delta, at) + max(t, 0), t >= 0);
}

// Rounded numbers of all warps to shared memory, as rows.
__device__ __forceinline__ void put(char* tile, const Scores& x) {
#pragma unroll
  for (int k = 0; k < 32; k += 2)
    *reinterpret_cast<uint32_t*>(tile + chunk_offset<kTile>(row(k), k / 4) + threadIdx.x % 4 * 4) =
        pack<bf16>(x[k], x[k + 1]);
}

// The columns 16 warp() .. of a tile as rows of an A operand.
__device__ __forceinline__ void load_transposed(Fragments<1, kTile>& f, uint32_t tile) {
#pragma unroll
  for (int k = 0; k < kTile / 16; ++k) {
    uint32_t r[4];
    ldmatrix_trans(r, lane_address<kTile>(tile, k, warp()));
    f.a[0][k][0] = r[0], f.a[0][k][1] = r[2], f.a[0][k][2] = r[1], f.a[0][k][3] = r[3];
  }
}

// dq: (B, H, T, 64) sums.
__device__ __forceinline__ void add_rows(float* dq, const Scores& x, const int32_t* slots) {
#pragma unroll
  for (int k = 0; k < 32; ++k) {
    const int t = slots[row(k)];
    if (t >= 0) atomicAdd(dq + int64_t{t} * kTile + column(k), x[k]);
  }
}

__global__ void __launch_bounds__(kThreads)
    key_kernel(const __grid_constant__ AttentionBackward g, float* sums) {
  extern __shared__ __align__(128) char shared[];
  auto& m = *reinterpret_cast<SharedMemory*>(shared);
  const BlockIndex at(g.q);
  const Direction d = Direction::key_stationary(g.maps.pass[0].maps[g.maps.map_of(at.b, at.h)]);
  if (at.rank >= d.own_tiles) return;
  const int own = d.schedule[at.rank], begin = d.start[own], end = d.start[own + 1];
  const int32_t* const own_slots = d.own_order + int64_t{own} * kTile;
  float* const dq_of_head = sums + (at.b * g.q.heads + at.h) * g.q.time * kTile;
  const auto fetch = [&](int e) {
    if (e < end) {
      const int32_t* const slots = d.other_order + int64_t{d.tile[e]} * kTile;
      fetch_stage(m.stages[e % 2], g, at, slots);
    }
    cp_async_commit_group();
  };
  const uint32_t keys = shared_address(m.keys), values = shared_address(m.ds);
  gather_async(keys, Rows::of(g.k, at.b, at.h), own_slots);
  gather_async(values, Rows::of(g.v, at.b, at.h), own_slots);
  fetch(begin);
  cp_async_wait_all();
  __syncthreads();
  Fragments<1, kTile> k, v;
  load_fragments<1, kTile, kTile>(k, keys, warp());
  load_fragments<1, kTile, kTile>(v, values, warp());

  Accumulators<1, kTile> dk, dv;
  dk.clear(), dv.clear();
  for (int e = begin; e < end; ++e) {
    __syncthreads();  // the other stage and dS have been read
    fetch(e + 1);
    cp_async_wait_all_but_last();
    __syncthreads();
    Stage& stage = m.stages[e % 2];
    Accumulators<1, kTile> p, ds, dq;
    mma_abt<bf16, 1, kTile, kTile>(p, k, shared_address(stage.q), 0);
    mma_abt<bf16, 1, kTile, kTile>(ds, v, shared_address(stage.dy), 0);
    differentiate<false>(flat(p), flat(ds), d, d.mask[e], static_cast<float>(g.scale) * kLog2E,
                         stage.lse, stage.delta);
    put(m.ds, flat(ds));
    Fragments<1, kTile> weights;
    round_to_fragments<bf16>(weights, p);
    mma_ab<bf16, 1, kTile, kTile>(dv, weights, shared_address(stage.dy), 0);
    round_to_fragments<bf16>(weights, ds);
    mma_ab<bf16, 1, kTile, kTile>(dk, weights, shared_address(stage.q), 0);
    __syncthreads();  // a product over all keys needs dS of all warps
    load_transposed(weights, shared_address(m.ds));
    dq.clear();
    mma_ab<bf16, 1, kTile, kTile>(dq, weights, keys, 0);
    add_rows(dq_of_head, flat(dq), d.other_order + int64_t{d.tile[e]} * kTile);
  }
  const auto scale = static_cast<float>(g.scale);
  store_rows(Rows::of(g.dk, at.b, at.h), own_slots, flat(dk), {scale, scale});
  store_rows(Rows::of(g.dv, at.b, at.h), own_slots, flat(dv), {1, 1});
}

// Rounds the sums; a thread has two neighbours.
__global__ void round_kernel(const __grid_constant__ AttentionBackward g, const float* sums) {
  const BlockIndex at(g.q);
  const int item = at.rank * kThreads + static_cast<int>(threadIdx.x), t = item / (kTile / 2),
            d = item % (kTile / 2) * 2;
  if (t >= g.q.time) return;
  const float* from = sums + ((at.b * g.q.heads + at.h) * g.q.time + t) * kTile + d;
  const auto scale = static_cast<float>(g.scale);
  *reinterpret_cast<uint32_t*>(head_row<uint16_t>(g.dq, at, t) + d) =
      pack<bf16>(from[0] * scale, from[1] * scale);
}
}  // namespace

void atomics_backward(Queue& queue, const AttentionBackward& g, const Pattern&) {
  auto& cuda = std::get<CudaQueue>(queue);
  std::size_t offset = 0;
  const int64_t count = g.q.batch * g.q.heads * g.q.time * kTile;
  auto* const sums = take_workspace<float>(cuda, offset, count, "ladder: atomics");
  write_delta(cuda, g);
  zero(cuda, sums, static_cast<std::size_t>(count) * sizeof(float));
  start(cuda, key_kernel, blocks_for(g.q, g.maps.pass[0].key_tiles, 1), kThreads,
        sizeof(SharedMemory), g, sums);
  start(cuda, round_kernel, blocks_for(g.q, g.q.time * (kTile / 2), kThreads), kThreads, 0, g,
        static_cast<const float*>(sums));
}
}  // namespace weft::ladder::cuda
