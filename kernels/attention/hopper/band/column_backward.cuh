// SPDX-License-Identifier: MIT
// Backward attention on Hopper over whole residue columns of more than 128 rows, heads up to 64,
// transposed as in backward.cuh. One warpgroup accumulates each gradient in the order of the tiles:
// no atomics.
#pragma once

#include "kernels/attention/hopper/band/backward_accumulators.cuh"
#include "kernels/attention/hopper/band/column_memory.cuh"
#include "kernels/attention/hopper/launch.cuh"

namespace weft::attention::hopper {
// A warpgroup that owns key tiles: dK and dV.
template <class T, class M>
class KeyOwner {
 public:
  using Steps = typename M::Steps;

  __device__ KeyOwner(M& memory, const BandBackward& g)
      : memory_(memory),
        g_(g),
        own_(warp_uniform(threadIdx.x / kWarpgroup - 1)) {}

  __device__ __forceinline__ void run() {
    Steps step(g_.tiles);
    while (step) {
      const int mine = owner_of(step.pair(), 0) == own_ ? 0 : 1;
      const bool two = step.has_key(1);
      // The queries of the first key tile do not see the second; the last ones may not see the
      // first.
      if (mine == 1 && step.query() < step.key(1)) pass(step);
      if ((mine == 0 || two) && !own(step, mine)) pass(step);
      key_.advance();
      if (two) key_.advance();
    }
    if (is_warpgroup_leader()) tma_store_wait_group_read<0>();
  }

 private:
  __device__ __forceinline__ void pass(Steps& step) {
    memory_.pipelines.queries.wait(stage_);
    memory_.pipelines.queries.release(stage_.stage);
    stage_.advance();
    step.next();
  }

  // The mainloop of a key tile; the MMAs that end an iteration overlap the next. true: the pair has
  // ended.
  __device__ __forceinline__ bool own(Steps& step, int mine) {
    PipelineState<M::kKeyStages> key = key_;
    if (mine == 1) key.advance();
    memory_.pipelines.keys.wait(key);
    const int key_stage = warp_uniform(key.stage);
    issue_scores(key_stage, take_stage());
    meet<true>(step, mine);
    int add = 0;
    for (; !step.ends_key(mine); add = 1) {
      const int before = warp_uniform(stage_.stage);
      stage_.advance();
      step.next();
      issue_scores(key_stage, take_stage());
      issue_gradients(before, add);
      meet<false>(step, mine);
    }
    const int last = warp_uniform(stage_.stage);
    issue_gradients(last, add);
    wgmma_wait_group<0>();
    pin(dk_), pin(dv_);
    memory_.pipelines.queries.release(last);
    memory_.pipelines.keys.release(key_stage);
    const TileSpan span = step.span();
    if (step.owns_key(span, mine)) {
      const TileCoord at = TileCoord::of(span, step.key(mine));
      send_panel<T>(warpgroup_index(), dk_, 0, g_.scale, memory_.out[own_], g_.dk, g_, at);
      send_panel<T>(warpgroup_index(), dv_, 0, 1.0f, memory_.out[own_], g_.dv, g_, at);
    }
    const bool ends = step.ends_pair();
    stage_.advance();
    step.next();
    return ends;
  }

  __device__ __forceinline__ int take_stage() const {
    memory_.pipelines.queries.wait(stage_);
    return warp_uniform(stage_.stage);
  }

  __device__ __forceinline__ void issue_scores(int key_stage, int stage) {
    pin(s_), pin(ds_);
    wgmma_fence();
    mma_abt<T, 64>(s_, memory_.keys[key_stage].x, memory_.stages[stage].x);
    wgmma_commit_group();
    mma_abt<T, 64>(ds_, memory_.keys[key_stage].y, memory_.stages[stage].y);
    wgmma_commit_group();
  }

  // A group: what the queries of a stage add to dV and dK, or what these begin with.
  __device__ __forceinline__ void issue_gradients(int stage, int add) {
    pin(dv_), pin(dk_);
    wgmma_fence();
    const Descriptor dy = descriptor(memory_.stages[stage].y),
                     q = descriptor(memory_.stages[stage].x);
    mma_ab<T>(dv_, p_operand_, dy, add);
    mma_ab<T>(dk_, ds_operand_, q, add);
    wgmma_commit_group();
  }

  // P^T and dS^T of the queries at hand; the MMAs of the stage before end meanwhile.
  template <bool kFirst>
  __device__ __forceinline__ void meet(const Steps& step, int mine) {
    const int buffer = ds_at_.stage;
    wgmma_wait_group<(kFirst ? 1 : 2)>();
    pin(s_);
    exponentiate(s_, memory_.lse(step), g_.scale * kLog2E);
    hide_from_queries(s_, g_.tiles, step.query() - step.key(mine), 0, Reach::of(g_.tiles));
    if (!g_.accumulate) memory_.pipelines.delta_full[stage_.stage].wait(stage_.parity);
    memory_.ds_pipeline[own_].acquire(ds_at_);
    wgmma_wait_group<0>();
    pin(ds_);
    if constexpr (!kFirst) {
      pin(dk_), pin(dv_), pin(p_operand_), pin(ds_operand_);
      memory_.pipelines.queries.release(warp_uniform(stage_.stage_back(1)));
    }
    differentiate(ds_, s_, memory_.delta(step));
    round_steps<T>(ds_operand_, ds_);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      stmatrix(lane_address<64>(memory_.ds[own_][buffer], threadIdx.x % kWarpgroup / 32, k),
               ds_operand_[k]);
    fence_proxy_async();
    memory_.ds_pipeline[own_].full[buffer].arrive_warp();
    ds_at_.advance();
    round_steps<T>(p_operand_, s_);
  }

  M& memory_;
  const BandBackward& g_;
  int own_;
  PipelineState<M::kStages> stage_;
  PipelineState<M::kKeyStages> key_;
  PipelineState<M::kBuffers> ds_at_;
  float dk_[32], dv_[32], s_[32], ds_[32];
  uint32_t p_operand_[4][4], ds_operand_[4][4];
};

// The warpgroup that accumulates dQ. In columns of few tiles the last two query tiles, which both
// pairs of key tiles meet, keep dQ in registers; else dQ is in `kept` until the next pair: (tiles,
// 8, threads).
template <class T, class M>
class PairDqAccumulator {
 public:
  using Steps = typename M::Steps;

  __device__ PairDqAccumulator(M& memory, const BandBackward& g, float4* kept)
      : memory_(memory),
        g_(g),
        kept_(kept + threadIdx.x % kWarpgroup) {}

  __device__ __forceinline__ void run() {
    float even[32], odd[32];
    bool in_odd = false;
    for (Steps step(g_.tiles); step; step.next()) {
      if (M::kWhole) in_odd = step.query() % 2;
      in_odd ? meet(step, odd, even) : meet(step, even, odd);
      in_odd = !in_odd;
    }
    if (is_warpgroup_leader()) tma_store_wait_group_read<0>();
  }

 protected:
  // following: takes what is kept of dQ of the next iteration, where registers do not hold it.
  __device__ __forceinline__ void meet(const Steps& step, float (&dq)[32], float (&following)[32]) {
    Steps next_step = step;
    next_step.next();
    const bool stays = next_step.query() == step.query();
    if (!M::kWhole && !next_step.first_visit() && !stays) fetch(following, next_step.query());
    const int first = owner_of(step.pair(), 0);
    const bool two = step.query() > step.key(0);
    PipelineState<M::kKeyStages> next = key_;
    next.advance();
    pin(dq);
    add(dq, first, key_.stage, !step.first_visit());
    if (two) add(dq, first ^ 1, next.stage, 1);
    wgmma_wait_group<0>();
    pin(dq);
    release(first);
    if (two) release(first ^ 1);
    if (step.ends_pair()) {
      memory_.pipelines.keys.release(key_.stage);
      key_.advance();
      if (step.has_key(1)) {
        memory_.pipelines.keys.release(key_.stage);
        key_.advance();
      }
    }
    if (step.last_visit())
      send_panel<T>(warpgroup_index(), dq, 0, g_.scale, memory_.out[M::kOwners], g_.dq, g_,
                    TileCoord::of(step.span(), step.query()));
    else if (!M::kWhole && !stays)
      keep(dq, step.query());
    if (!M::kWhole && stays)
#pragma unroll
      for (int i = 0; i < 32; ++i) following[i] = dq[i];
  }

  __device__ __forceinline__ int buffer(int owner) const {
    return M::kBuffers == 2 ? counts_ >> (8 * owner) & 1 : 0;
  }

  __device__ __forceinline__ void add(float (&dq)[32], int owner, int key_stage, int add_to) const {
    memory_.ds_pipeline[owner].full[buffer(owner)].wait(counts_ >> (8 * owner + M::kBuffers - 1) &
                                                        1);
    const Descriptor ds =
                         descriptor(warp_uniform(shared_address(memory_.ds[owner][buffer(owner)]))),
                     k = descriptor(warp_uniform(shared_address(memory_.keys[key_stage].x)));
    wgmma_fence();
    mma_atb<T>(dq, ds, k, add_to);
    wgmma_commit_group();
  }

  __device__ __forceinline__ void release(int owner) {
    memory_.ds_pipeline[owner].release(buffer(owner));
    counts_ = (counts_ + (1u << 8 * owner)) & 0x0303;
  }

  __device__ __forceinline__ void fetch(float (&dq)[32], int tile) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 x = __ldcg(kept_ + (tile * 8 + i) * kWarpgroup);
      dq[4 * i] = x.x, dq[4 * i + 1] = x.y, dq[4 * i + 2] = x.z, dq[4 * i + 3] = x.w;
    }
  }

  __device__ __forceinline__ void keep(const float (&dq)[32], int tile) const {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      __stcg(kept_ + (tile * 8 + i) * kWarpgroup,
             make_float4(dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]));
  }

  M& memory_;
  const BandBackward& g_;
  float4* kept_;
  PipelineState<M::kKeyStages> key_;
  unsigned counts_ = 0;  // of each owner's steps, modulo 4, a byte each
};

template <class T, bool kWhole>
struct ColumnBackwardKernel {
  using SharedStorage = ColumnMemory<kWhole>;
  static constexpr int kThreads = SharedStorage::kThreads;
  static constexpr RegisterSplit kRegisters = kOwnerRegisters;

  __device__ __forceinline__ static void init(SharedStorage& memory, const BandBackward& g,
                                              float4* kept) {
    memory.init(!g.accumulate);
  }

  __device__ __forceinline__ static void produce(SharedStorage& memory, const BandBackward& g,
                                                 float4* kept) {
    produce_pairs<T>(memory, g);
  }

  __device__ __forceinline__ static void consume(SharedStorage& memory, const BandBackward& g,
                                                 float4* kept) {
    KeyOwner<T, SharedStorage>(memory, g).run();
  }

  __device__ __forceinline__ static void consume_extra(SharedStorage& memory, const BandBackward& g,
                                                       float4* kept) {
    float4* const of_block = kept + int64_t{blockIdx.x} * g.tiles.tiles * 8 * kWarpgroup;
    PairDqAccumulator<T, SharedStorage>(memory, g, of_block).run();
  }
};
}  // namespace weft::attention::hopper
