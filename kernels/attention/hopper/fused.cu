// SPDX-License-Identifier: MIT
// Backward attention on Hopper as one key-stationary kernel, transposed as key_stationary.cuh. dS^T
// also goes to shared memory for dQ. No atomics: work items that share a query tile add to its dQ
// by turns.
#include "kernels/attention/hopper/epilogue.cuh"
#include "kernels/attention/hopper/fused_dq.cuh"
#include "kernels/attention/hopper/key_stationary.cuh"
#include "kernels/attention/hopper/launch.cuh"
#include "kernels/attention/hopper/masks.cuh"
#include "kernels/attention/select.h"
#include "kernels/device/dependent_launch.cuh"

#include <algorithm>

namespace weft::attention::hopper {
// ---- owners: dK and dV ----

// FusedScratch::scalars of the columns 8 j + 2 t, 8 j + 2 t + 1 of a stage.
struct FusedScalars {
  float lse[2], delta[2];

  __device__ __forceinline__ void load(SharedAddress scalars, int j) {
    const float4 x = ld_shared_float4(scalars + threadIdx.x % 4 * 16 + j * 64);
    lse[0] = x.x, delta[0] = x.y, lse[1] = x.z, delta[1] = x.w;
  }
};

// Those of the first columns are fetched while the MMAs run, as many as the registers allow.
inline constexpr int kEarlyNumbers = 2;

// Transposed scores and dP into probabilities times 2^kProbabilityBits and dS.
template <class T, bool kMasked>
__device__ __forceinline__ void differentiate_fused(float (&s)[32], float (&dp)[32],
                                                    SharedAddress scalars,
                                                    const FusedScalars (&early)[kEarlyNumbers],
                                                    float scale, const MaskWords& words) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    FusedScalars of;
    if (j < kEarlyNumbers)
      of = early[j];
    else
      of.load(scalars, j);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float p = exp2_fast(fmaf(s[4 * j + i], scale, of.lse[i % 2]));
      if (kMasked && !words.at(i / 2, j, i % 2)) p = 0;
      s[4 * j + i] = p;
      dp[4 * j + i] = score_gradient<T>(p, dp[4 * j + i], of.delta[i % 2]);
    }
  }
}

// Hands an owner's dS^T over to the warpgroup that accumulates dQ.
class DsOut {
 public:
  __device__ DsOut(FusedMemory& memory, int own)
      : memory_(memory),
        own_(own) {}

  template <class T>
  __device__ __forceinline__ void round(KeyAccumulators<T, 64, 64>& acc) {
    round_to_operand<T>(acc.ds_operand, acc.ds);
    memory_.ds_pipeline[own_].acquire(at_);
    store_operand(memory_.ds[own_][at_.stage], acc.ds_operand);
    round_probabilities<T>(acc.p_operand, acc.s);
  }

  // Waits for what was stored: better a while later.
  __device__ __forceinline__ void announce() {
    fence_proxy_async();
    memory_.ds_pipeline[own_].full[at_.stage].arrive_warp();
    at_.advance();
  }

 private:
  FusedMemory& memory_;
  int own_;
  PipelineState<FusedMemory::kBuffers> at_;
};

// The MMAs that end an iteration are issued after those that begin the next one, and overlap its
// exp2. at_end() is called once or more, the last time while the last MMAs run.
template <class T, class K, class V, class AtEnd>
__device__ __forceinline__ void fused_mainloop(KeyAccumulators<T, 64, 64>& acc,
                                               Consumer<FusedMemory>& stream, DsOut& out,
                                               const FusedMemory& memory, const uint64_t* masks,
                                               const K& k, const V& v, const AtEnd& at_end) {
  int mask = stream.next();
  FusedScalars early[kEarlyNumbers];
  MaskWords words;
  // What this iteration will need, and a wait for the one after it: hidden behind MMAs.
  const auto look_ahead = [&](int stage) {
    if (mask >= 0) words.load(masks, mask);
    const int following = stream.step();
#pragma unroll
    for (int j = 0; j < kEarlyNumbers; ++j) early[j].load(memory.scalars[stage], j);
    return following;
  };
  const auto differentiate = [&](int stage) {
    pin(acc.s), pin(acc.ds);
    if (mask >= 0) {
      const MaskWords copy = words;  // without it a register is spilled
      differentiate_fused<T, true>(acc.s, acc.ds, memory.scalars[stage], early, acc.scale, copy);
    } else {
      differentiate_fused<T, false>(acc.s, acc.ds, memory.scalars[stage], early, acc.scale, words);
    }
    pin(acc.s), pin(acc.ds);
  };
  if (mask == kEnd) at_end();
  while (mask != kEnd) {
    const int first = warp_uniform(stream.stage());
    acc.issue_scores(memory, first, k, v);
    int following = look_ahead(first);
    wgmma_wait_group<0>();
    differentiate(first);
    out.round(acc);
    while (is_tile(mask = following)) {
      const int stage = warp_uniform(stream.stage()), before = warp_uniform(stream.stage_before());
      acc.issue_scores(memory, stage, k, v);
      out.announce();
      acc.issue_values(memory.stages[before].y);
      acc.issue_keys(memory.stages[before].x);
      following = look_ahead(stage);
      wgmma_wait_group<2>();
      differentiate(stage);
      wgmma_wait_group<0>();
      pin(acc.dk), pin(acc.dv), pin(acc.p_operand), pin(acc.ds_operand);
      stream.release(before);
      out.round(acc);
    }
    const int last = stream.last_tile(mask);
    out.announce();
    acc.issue_values(memory.stages[last].y);
    acc.issue_keys(memory.stages[last].x);
    at_end();
    wgmma_wait_group<0>();
    pin(acc.dk), pin(acc.dv);
    stream.release(last);
    if (mask == kSkip) mask = stream.next();
  }
}

template <class T>
__device__ __forceinline__ void own_keys(FusedMemory& memory, const AttentionBackward& g) {
  Consumer<FusedMemory> stream(memory);
  DsOut out(memory, stream.own());
  const float scale = static_cast<float>(g.scale) * kLog2E;
  for (;;) {
    const auto& work = stream.take_work();
    if (warp_uniform(work.end)) break;
    const uint64_t* const masks = work.masks;
    Owned<64, false> k, v;
    k.load(stream.own_tile().x);
    v.load(stream.own_tile().y);
    KeyAccumulators<T, 64, 64> acc(scale);
    int position[2] = {-1, -1}, place = 0;  // looked up at the end: registers are scarce
    fused_mainloop(acc, stream, out, memory, masks, k, v, [&] {
      position[0] = position_of(work, stream.own(), 0),
      position[1] = position_of(work, stream.own(), 1);
      place = work.b * static_cast<int>(g.q.heads) + work.h;
    });
    stream.release_work();
    const int heads = static_cast<int>(g.q.heads), b = place / heads, h = place % heads;
    const Rows dk = Rows::of(g.dk, b, h), dv = Rows::of(g.dv, b, h);
    const auto dk_scale = static_cast<float>(g.scale);
    store_rows<T>(acc.dk, dk_scale, false, position, dk);
    store_rows<T>(acc.dv, kProbabilityUnit<T>, false, position, dv);
  }
}

// ---- the kernel ----

template <class T>
struct FusedKernel {
  using SharedStorage = FusedMemory;
  static constexpr int kThreads = FusedMemory::kThreads;
  static constexpr RegisterSplit kRegisters = {.producer = 48, .consumer = 200, .extra = 64};

  __device__ __forceinline__ static void init(FusedMemory& memory, const auto&...) {
    memory.init();
    griddepcontrol_wait();
  }

  __device__ __forceinline__ static void produce(FusedMemory& memory, const AttentionBackward& g,
                                                 const AttentionPass& pass,
                                                 const TensorMaps& tensor_maps,
                                                 const FusedScratch& scratch) {
    constexpr int kProducers = FusedMemory::kProducingWarps;
    if (threadIdx.x < kProducers * 32) {
      TensorView scalars = g.lse;
      scalars.data = scratch.scalars;
      Producer<Direction::key_stationary, FusedMemory>(memory).run(
          g.maps, pass, pass.key_tiles, {g.k, g.v, g.q, g.dy, scalars, scalars}, tensor_maps);
    } else if (threadIdx.x % 32 == 0) {
      TurnTaker(memory, scratch, static_cast<int>(threadIdx.x / 32) - kProducers).run();
    }
  }

  __device__ __forceinline__ static void consume(FusedMemory& memory, const AttentionBackward& g,
                                                 const AttentionPass& pass,
                                                 const TensorMaps& tensor_maps,
                                                 const FusedScratch& scratch) {
    own_keys<T>(memory, g);
  }

  __device__ __forceinline__ static void consume_extra(FusedMemory& memory,
                                                       const AttentionBackward& g,
                                                       const AttentionPass& pass,
                                                       const TensorMaps& tensor_maps,
                                                       const FusedScratch& scratch) {
    FusedDqAccumulator<T>(memory, g, pass, scratch).run();
  }
};

void launch_fused_backward(CudaQueue& queue, const AttentionBackward& g,
                           const AttentionPass& pass) {
  TensorMaps tensor_maps{};
  WEFT_CHECK(describe(tensor_maps, pass.key_run, g.k, g.v, pass.query_run, g.q, g.dy), kTmaRefuses);
  // All pairs: of few, more tasks of each would wait for their turn to add to dQ.
  tensor_maps.together = static_cast<int>(g.q.batch * g.q.heads);
  const int64_t needed = scratch_of(Kernel::hopper_fused, Problem::of(g), pass);
  WEFT_CHECK(g.scratch.size() >= needed, "attention: scratch of ", g.scratch.size(),
             " elements, needed are ", needed);
  const FusedScratch scratch = FusedScratch::of(g, pass);
  const int64_t rows =
      std::max(g.q.batch * g.q.heads * g.q.time, g.q.batch * g.q.heads * scratch.tiles);
  with_type(g, [&]<class T>() {
    const auto blocks = static_cast<unsigned>((rows + kRowsOfBlock - 1) / kRowsOfBlock);
    begin_fused_kernel<T><<<blocks, kRowThreads, 0, queue.stream>>>(g, pass, scratch);
    launch_persistent_dependent<FusedKernel<T>>(
        queue, blocks_for(g.q, pass.key_tiles, FusedMemory::kOwners), g, pass, tensor_maps,
        scratch);
  });
}
}  // namespace weft::attention::hopper
