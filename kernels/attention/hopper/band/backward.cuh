// SPDX-License-Identifier: MIT
// Backward attention on Hopper over a band that reaches at most 128 rows, as one kernel: five
// matmuls for each pair of tiles, every tensor is read or written once. Scores are transposed (rows
// are keys), so that P^T and dS^T are A operands in registers. dS^T also goes to shared memory,
// where the consumer whose key tile begins accumulates dQ over all consumers' tiles, in their
// order.
#pragma once

#include "kernels/attention/hopper/band/backward_accumulators.cuh"
#include "kernels/attention/hopper/band/backward_producer.cuh"
#include "kernels/attention/hopper/launch.cuh"

namespace weft::attention::hopper {
// What a consumer warpgroup holds of a key tile, and how queries add to it.
template <class T, class M, int kQueries, bool kDocuments>
class KeyGradients {
 protected:
  static constexpr int kSteps = kQueries / 16, kParts = kTile / kQueries;

  __device__ KeyGradients(M& memory, const BandBackward& g)
      : memory_(memory),
        g_(g),
        reach_(Reach::of(g.tiles)) {}

  // P^T and dS^T of kQueries queries, and the MMAs that add to dV and dK; the last part leaves them
  // in flight. `ds_panel` takes dS^T once barrier `ds_free` has passed that phase.
  __device__ __forceinline__ void meet_part(int back, int key_stage, int part, Panel& ds_panel,
                                            const Barrier& ds_empty, int phase) {
    float s[kQueries / 2], ds[kQueries / 2];
    const int first = part * kQueries * 128;  // bytes of a panel
    if constexpr (kDocuments)
      if (back == 0 && part == 0) find_reach();
    pin(s), pin(ds);
    wgmma_fence();
    mma_abt<T, M::Dqk>(s, memory_.keys[key_stage].x,
                       shared_address(memory_.stages[stage_.stage].x) + first);
    wgmma_commit_group();
    mma_abt<T, M::Dv>(ds, memory_.keys[key_stage].y,
                      shared_address(memory_.stages[stage_.stage].y) + first);
    wgmma_commit_group();
    wgmma_wait_group<1>();
    pin(s);
    exponentiate(s, memory_.lse(stage_.stage) + part * kQueries * 4, g_.scale * kLog2E);
    if constexpr (kDocuments) reach_.compare(g_.tiles);
    hide_from_queries(s, g_.tiles, back, part * kQueries, reach_);
    if (part == 0) {
      if (!g_.accumulate) memory_.pipelines.delta_full[stage_.stage].wait(stage_.parity);
      ds_empty.wait(phase);
    }
    wgmma_wait_group<0>();
    pin(ds);
    differentiate(ds, s, memory_.delta(stage_.stage) + part * kQueries * 4);
    uint32_t p_operand[kSteps][4], ds_operand[kSteps][4];
    round_steps<T>(p_operand, s);
    round_steps<T>(ds_operand, ds);
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      stmatrix(lane_address<64>(ds_panel, threadIdx.x % kWarpgroup / 32, part * kSteps + k),
               ds_operand[k]);
    pin(dk_), pin(dv_);
    wgmma_fence();
    const Descriptor dy = descriptor(shared_address(memory_.stages[stage_.stage].y) + first),
                     q = descriptor(shared_address(memory_.stages[stage_.stage].x) + first);
    mma_ab<T>(dv_, p_operand, dy, back > 0 || part > 0);
    mma_ab<T>(dk_, ds_operand, q, back > 0 || part > 0);
    wgmma_commit_group();
    if (part + 1 < kParts) {
      wgmma_wait_group<0>();
      pin(dk_), pin(dv_);
    }
  }

  // Of the keys that meet their own queries: the first of those that they meet.
  __device__ __forceinline__ void find_reach() {
    const TileCoord at = TileStep::read_coord(memory_.step[stage_.stage]);
    const int position[2] = {g_.tiles.position(at.group, at.tile, row_of(0)),
                             g_.tiles.position(at.group, at.tile, row_of(1))};
    reach_.load(g_.tiles, at.b, position, 1);
  }

  M& memory_;
  const BandBackward& g_;
  Reach reach_;
  PipelineState<M::kStages> stage_;
  float dk_[M::Dqk / 2], dv_[M::Dv / 2];
};

template <class T, class M, int kQueries, bool kDocuments>
class BandBackwardConsumer : KeyGradients<T, M, kQueries, kDocuments> {
 public:
  using Base = KeyGradients<T, M, kQueries, kDocuments>;

  __device__ BandBackwardConsumer(M& memory, const BandBackward& g)
      : Base(memory, g),
        own_(warp_uniform(threadIdx.x / kWarpgroup - 1)) {}

  __device__ __forceinline__ void run() {
    int back = own_ == 0 ? 0 : M::kConsumers - own_;
    for (;;) {
      memory_.pipelines.queries.wait(stage_);
      const TileStep step = TileStep::read(memory_.step[stage_.stage]);
      if (step.met_before < 0) break;
      if (back <= step.met_before)
        meet(step, back);
      else
        pass();
      stage_.advance(), key_.advance();
      parity_ ^= 1;
      back = back + 1 == M::kConsumers ? 0 : back + 1;
    }
    if (is_warpgroup_leader()) tma_store_wait_group_read<0>();
  }

 private:
  using Base::memory_, Base::g_, Base::stage_, Base::dk_, Base::dv_;

  // This consumer's key tile is of another span, or out of reach.
  __device__ __forceinline__ void pass() {
    memory_.ds_pipeline.empty[0].wait(parity_ ^ 1);
    memory_.ds_pipeline.full[0].arrive_warp();
    memory_.pipelines.queries.release(stage_.stage);
  }

  // The queries at hand meet the key tile of `back` iterations ago.
  __device__ __forceinline__ void meet(const TileStep& step, int back) {
    const int key_stage = key_.stage_back(back);
    if (back == 0) memory_.pipelines.keys.full[key_stage].wait(key_.parity);
#pragma unroll
    for (int part = 0; part < Base::kParts; ++part)
      Base::meet_part(back, key_stage, part, memory_.ds[back], memory_.ds_pipeline.empty[0],
                      parity_ ^ 1);
    fence_proxy_async();
    memory_.ds_pipeline.full[0].arrive_warp();
    wgmma_wait_group<0>();
    pin(dk_), pin(dv_);
    const TileCoord at = TileStep::read_coord(memory_.step[stage_.stage]);
    memory_.pipelines.queries.release(stage_.stage);
    if (back == 0) end_queries(step, at);
    if (!ends(step, back)) return;
    memory_.pipelines.keys.release(key_stage);
    if (!(step.owned_keys >> back & 1)) return;
    const TileCoord keys{at.tile - back, at.group, at.h, at.b};
    put(dk_, g_.scale, g_.dk, keys);
    put(dv_, 1.0f, g_.dv, keys);
  }

  // Whether the key tile of `back` iterations ago meets no later queries.
  __device__ __forceinline__ bool ends(const TileStep& step, int back) const {
    return step.is_last || back == g_.tiles.tiles_back();
  }

  // All consumers have met the queries at hand: dQ.
  __device__ __forceinline__ void end_queries(const TileStep& step, const TileCoord& at) {
    memory_.ds_pipeline.full[0].wait(parity_);
    if (step.owns_queries) {
      float dq[M::Dqk / 2];
      if (M::kConsumers == 3 && step.met_before == 2)
        sum_queries<M::kConsumers>(dq);
      else if (step.met_before == 1)
        sum_queries<2>(dq);
      else
        sum_queries<1>(dq);
      release_queries(step);
      put(dq, g_.scale, g_.dq, at);
    } else {
      release_queries(step);
    }
  }

  __device__ __forceinline__ void release_queries(const TileStep& step) {
    memory_.ds_pipeline.release(0);
    for (int back = step.met_before; back >= 0; --back)
      if (ends(step, back)) memory_.pipelines.keys.release(key_.stage_back(back));
  }

  // dQ of the queries at hand, over their kTiles key tiles from the earliest on.
  template <int kTiles>
  __device__ __forceinline__ void sum_queries(float (&dq)[M::Dqk / 2]) const {
    pin(dq);
    wgmma_fence();
#pragma unroll
    for (int back = kTiles - 1; back >= 0; --back) {
      const Descriptor ds = descriptor(memory_.ds[back]),
                       k = descriptor(memory_.keys[key_.stage_back(back)].x);
      mma_atb<T>(dq, ds, k, back < kTiles - 1);
    }
    wgmma_commit_group();
    wgmma_wait_group<0>();
    pin(dq);
  }

  // Epilogue: accumulators times `factor`, rounded, to global memory.
  template <int N>
  __device__ __forceinline__ void put(const float (&c)[N], float factor, const CUtensorMap& to,
                                      const TileCoord& at) {
#pragma unroll
    for (int panel = 0; panel < N / 32; ++panel) {
      Panel& out = memory_.out[own_][out_.stage];
      send_panel<T, M::kOut - 1>(own_ + 1, c, panel, factor, out, to, g_, at);
      out_.advance();
    }
  }

  int own_, parity_ = 0;
  PipelineState<M::kKeyStages> key_;
  PipelineState<M::kOut> out_;
};

// As the registers allow: all queries of a tile at once, or a half after the other.
template <int Dqk, int Dv, int kConsumers>
struct BandShape {
  using M = BandBackwardMemory<Dqk, Dv, kConsumers>;
  static constexpr int kQueries = (Dv == 128 && kConsumers == 3) || Dqk == 128 ? 32 : 64;
  static constexpr RegisterSplit kRegisters = kConsumers == 3
                                                  ? RegisterSplit{.producer = 32, .consumer = 160}
                                                  : RegisterSplit{.producer = 40, .consumer = 232};
};

template <class T, int Dqk, int Dv, int kConsumers, bool kDocuments>
struct BandBackwardKernel {
  using Shape = BandShape<Dqk, Dv, kConsumers>;
  using SharedStorage = typename Shape::M;
  static constexpr int kThreads = SharedStorage::kThreads;
  static constexpr RegisterSplit kRegisters = Shape::kRegisters;

  __device__ __forceinline__ static void init(SharedStorage& memory, const BandBackward& g) {
    memory.init(!g.accumulate);
  }

  __device__ __forceinline__ static void produce(SharedStorage& memory, const BandBackward& g) {
    hopper::produce<T>(memory, g);
  }

  __device__ __forceinline__ static void consume(SharedStorage& memory, const BandBackward& g) {
    BandBackwardConsumer<T, SharedStorage, Shape::kQueries, kDocuments>(memory, g).run();
  }
};

template <class T, int Dqk, int Dv, int kConsumers>
void start_band_backward(CudaQueue& queue, const BandBackward& g) {
  with_bool(g.tiles.reaches != nullptr, [&]<bool kDocuments>() {
    launch_persistent<BandBackwardKernel<T, Dqk, Dv, kConsumers, kDocuments>>(
        queue, g.tiles.launched_items(), g);
  });
}

// The memory map of README.md.
static_assert(sizeof(BandBackwardMemory<64, 64, 3>) == 223'024);
static_assert(sizeof(BandBackwardMemory<64, 128, 3>) == 214'224);
static_assert(sizeof(BandBackwardMemory<64, 128, 2>) == 197'840);
static_assert(sizeof(BandBackwardMemory<128, 128, 2>) == 230'592);
}  // namespace weft::attention::hopper
