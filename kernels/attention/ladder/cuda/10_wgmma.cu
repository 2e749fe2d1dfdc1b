// SPDX-License-Identifier: MIT
// Rung 10: Hopper's instructions. wgmma multiplies with a warpgroup of 128 threads and reads its
// operands from shared memory. TMA copies boxes of rows: one thread asks, an mbarrier counts the
// bytes. Everybody still does everything: the one warpgroup loads, multiplies and exponentiates in
// turn. Orders without runs of 8 slots are gathered by cp.async, as in rung 7.
#include "kernels/attention/ladder/cuda/fragments.cuh"
#include "kernels/device/pipeline.cuh"
#include "kernels/device/tma.cuh"
#include "kernels/device/wgmma.cuh"

namespace weft::ladder::cuda {
namespace {
struct Stage {
  Panel keys, values;
};

struct SharedStorage {
  Panel queries;
  Stage stages[2];
  Barrier full[2];
};

// Boxes of `run` slots that follow each other; 0: none do.
struct Boxes {
  CUtensorMap k, v;
  int run = 0;

  explicit Boxes(const AttentionForward& f)
      : run(f.maps.pass[0].key_run) {
    const auto encode = [&](CUtensorMap& map, const HeadsView& x) {
      return encode_tensor_map<4>(map, x.dtype, x.data, {x.size, x.time, x.heads, x.batch},
                                  {x.time_stride, x.head_stride, x.batch_stride},
                                  {kTile, run, 1, 1}, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
    };
    if (run < 8 || !encode(k, f.k) || !encode(v, f.v)) run = 0;
  }
};

// Starts the copies of the keys and values in 64 slots.
__device__ __forceinline__ void fetch_tile(Stage& stage, Barrier& full, const AttentionForward& f,
                                           const Boxes& boxes, const BlockIndex& at,
                                           const int32_t* slots) {
  const uint32_t keys = shared_address(stage.keys), values = shared_address(stage.values);
  const int run = boxes.run, lane = static_cast<int>(threadIdx.x);
  if (run == 0) {
    gather_async(keys, Rows::of(f.k, at.b, at.h), slots);
    gather_async(values, Rows::of(f.v, at.b, at.h), slots);
    full.arrive_cp_async();
    return;
  }
  if (lane == 0) full.arrive_expect_tx(sizeof(Stage));
  if (lane >= kTile / run) return;
  const int first = slots[lane * run], t = first < 0 ? static_cast<int>(f.k.time) : first;
  const uint32_t row = lane * run * kTile * 2;  // rows from f.k.time on are zeros
  tma_load(keys + row, boxes.k, 0, t, at.h, at.b, full.address());
  tma_load(values + row, boxes.v, 0, t, at.h, at.b, full.address());
}

__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ AttentionForward f,
                   const __grid_constant__ Boxes boxes) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char shared[];
  SharedStorage& memory = shared_storage<SharedStorage>(shared);
  const uint32_t queries = shared_address(memory.queries);
  const BlockIndex at(f.q);
  const Direction d = Direction::query_stationary(f.maps.pass[0].maps[f.maps.map_of(at.b, at.h)]);
  if (at.rank >= d.own_tiles) return;
  const int own = d.schedule[at.rank], begin = d.start[own], count = d.start[own + 1] - begin;
  const int32_t* const own_slots = d.own_order + int64_t{own} * kTile;
  const bool by_tma = boxes.run > 0;
  if (threadIdx.x == 0) {
    for (Barrier& full : memory.full) full.init(by_tma ? 1 : kThreads);
    fence_proxy_async();
  }
  gather_async(queries, Rows::of(f.q, at.b, at.h), own_slots);
  cp_async_wait_all();
  fence_proxy_async();  // wgmma reads what cp.async wrote
  __syncthreads();
  Owned<kTile, false> q;  // in registers, ptxas 13.0 overwrites it between iterations
  q.load(queries);

  const auto fetch = [&](int n) {
    const int32_t* const slots = d.other_order + int64_t{d.tile[begin + n]} * kTile;
    fetch_tile(memory.stages[n % 2], memory.full[n % 2], f, boxes, at, slots);
  };
  if (count > 0) fetch(0);
  OnlineSoftmax softmax{static_cast<float>(f.scale) * kLog2E};
  Scores y = {}, s;
  for (int n = 0; n < count; ++n) {
    const Stage& stage = memory.stages[n % 2];
    if (n + 1 < count) fetch(n + 1);
    memory.full[n % 2].wait(n / 2 % 2);
    if (!by_tma) fence_proxy_async();
    pin(s);
    wgmma_fence();
    q.mma_abt<bf16>(s, descriptor(shared_address(stage.keys)));
    wgmma_commit_group();
    wgmma_wait_group<0>();
    pin(s);
    hide(s, d, d.mask[begin + n], -INFINITY);
    softmax.apply(s, y);
    uint32_t p[4][4];
    round_to_operand<bf16>(p, s);
    pin(y), pin(p);
    wgmma_fence();
    mma_ab<bf16>(y, p, descriptor(shared_address(stage.values)), 1);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    pin(y);
    __syncthreads();  // the stage has been read
  }
  const float2 inverse = softmax.finish(scalars_of(f.lse, at), own_slots);
  store_rows(Rows::of(f.y, at.b, at.h), own_slots, y, inverse);
#endif
}
}  // namespace

void wgmma_forward(Queue& queue, const AttentionForward& f, const Pattern&) {
  start(std::get<CudaQueue>(queue), forward_kernel, blocks_for(f.q, f.maps.pass[0].query_tiles, 1),
        kThreads, kSharedBytes<SharedStorage>, f, Boxes(f));
}
}  // namespace weft::ladder::cuda
