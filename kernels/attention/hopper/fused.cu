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
  using M = FusedMemory<64>;

 public:
  __device__ DsOut(M& memory, int own)
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
  M& memory_;
  int own_;
  PipelineState<M::kBuffers> at_;
};

// The MMAs that end an iteration are issued after those that begin the next one, and overlap its
// exp2. at_end() is called once or more, the last time while the last MMAs run.
template <class T, class K, class V, class AtEnd>
__device__ __forceinline__ void fused_mainloop(KeyAccumulators<T, 64, 64>& acc,
                                               Consumer<FusedMemory<64>>& stream, DsOut& out,
                                               const FusedMemory<64>& memory, const uint64_t* masks,
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
__device__ __forceinline__ void own_keys(FusedMemory<64>& memory, const AttentionBackward& g) {
  Consumer<FusedMemory<64>> stream(memory);
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

// ---- owners with heads of 128: dK, dV, and half of the columns of dQ ----

// One iteration a stage. dQ of a stage follows one iteration later, when the other owner's dS has
// long been there: owners may be up to an iteration apart, so that the MMAs of one overlap the
// exp2 of the other. An owner without a tile in a stage gives zeros as dS.
template <class T>
class Fused128Owner {
 public:
  using M = FusedMemory<128>;

  __device__ Fused128Owner(M& memory, const AttentionBackward& g, const FusedScratch& scratch)
      : memory_(memory),
        g_(g),
        scratch_(scratch),
        stream_(memory) {}

  __device__ __forceinline__ void run() {
    const float scale = static_cast<float>(g_.scale) * kLog2E;
    for (;;) {
      const auto& work = stream_.take_work();
      if (warp_uniform(work.end)) break;
      Owned<128, false> k, v;
      k.load(stream_.own_tile().x);
      v.load(stream_.own_tile().y);
      Accumulators acc(scale);
      int position[2] = {-1, -1}, place = 0;  // looked up at the end: registers are scarce
      mainloop(acc, k, v, [&] {
        position[0] = position_of(work, stream_.own(), 0);
        position[1] = position_of(work, stream_.own(), 1);
        place = place_of(work, static_cast<int>(g_.q.heads));
      });
      stream_.release_work();
      store_dk_dv<T>(acc, g_, place & ~1, position);
    }
    for (int i = 0; i < M::kBuffers; ++i, ++n_) open_dq(n_), close_dq(n_, {-1, 0});
  }

 private:
  using Accumulators = KeyAccumulators<T, 128, 128>;
  using Operand = Owned<128, false>;

  template <class AtEnd>
  __device__ __forceinline__ void mainloop(Accumulators& acc, const Operand& k, const Operand& v,
                                           const AtEnd& at_end) {
    float dq[32];
    bool first = true;
    int mask = step();
    while (mask != kEnd) {
      int stage = warp_uniform(stream_.stage());
      if (mask == kSkip) {
        give_zeros(stage);
        issue_dq(dq, first);
        mask = step();
        wgmma_wait_group<0>();
        end_iteration(acc, dq, stage, first);
        continue;
      }
      issue(acc.s, k, memory_.stages[stage].x);
      issue(acc.ds, v, memory_.stages[stage].y);
      for (;;) {
        differentiate(acc, stage, mask);
        issue_dq(dq, first);
        mask = step();
        if (!is_tile(mask)) break;
        const int next = warp_uniform(stream_.stage());
        wgmma_wait_group<0>();
        issue(acc.s, k, memory_.stages[next].x);
        end_iteration(acc, dq, stage, first);
        issue(acc.ds, v, memory_.stages[next].y);
        stage = next;
      }
      wgmma_wait_group<0>();
      end_iteration(acc, dq, stage, first);
    }
    at_end();
    if (first) return;
    issue_dq(dq, first);
    wgmma_wait_group<0>();
    pin(dq);
    put_dq(dq);
  }

  // The next stage's mask index. A stage without a tile of this owner is not released here.
  __device__ __forceinline__ int step() {
    stream_.await_step(false);
    return stream_.take_step(stream_.look_at_step());
  }

  // c = A B^T: transposed scores, or dP.
  __device__ __forceinline__ static void issue(float (&c)[32], const Operand& a, SharedAddress b) {
    pin(c);
    wgmma_fence();
    a.template mma_abt<T>(c, descriptor(b));
    wgmma_commit_group();
  }

  // Scores and dP, on their way, to P and dS; dV and dK begin.
  __device__ __forceinline__ void differentiate(Accumulators& acc, int stage, int mask) {
    const SharedAddress scalars = memory_.scalars[stage];
    MaskWords words;
    if (mask >= 0) words.load(memory_.work[0].masks, mask);
    wgmma_wait_group<1>();
    pin(acc.s);
    if (mask >= 0)
      probabilities<true>(acc.s, scalars, acc.scale, words);
    else
      probabilities<false>(acc.s, scalars, acc.scale, words);
    round_probabilities<T>(acc.p_operand, acc.s);
    wgmma_wait_group<0>();
    pin(acc.ds);
    score_gradients(acc.ds, acc.s, scalars);
    round_to_operand<T>(acc.ds_operand, acc.ds);
    acquire_ds();
    store_operand(memory_.ds[stream_.own()][n_ % 2], acc.ds_operand);
    acc.issue_values(memory_.stages[stage].y);
    acc.issue_keys(memory_.stages[stage].x);
    announce_ds(stage);
  }

  template <bool kMasked>
  __device__ __forceinline__ static void probabilities(float (&s)[32], SharedAddress scalars,
                                                       float scale, const MaskWords& words) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      FusedScalars of;
      of.load(scalars, j);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[4 * j + i] = exp2_fast(fmaf(s[4 * j + i], scale, of.lse[i % 2]));
        if (kMasked && !words.at(i / 2, j, i % 2)) s[4 * j + i] = 0;
      }
    }
  }

  __device__ __forceinline__ static void score_gradients(float (&dp)[32], const float (&p)[32],
                                                         SharedAddress scalars) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      FusedScalars of;
      of.load(scalars, j);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        dp[4 * j + i] = score_gradient<T>(p[4 * j + i], dp[4 * j + i], of.delta[i % 2]);
    }
  }

  // ---- dS of iteration n_: buffer n_ % 2 of each owner ----

  __device__ __forceinline__ void acquire_ds() const {
    memory_.ds_pipeline[stream_.own()].empty[n_ % 2].wait(n_ / 2 % 2 ^ 1);
  }

  __device__ __forceinline__ void give_zeros(int stage) {
    acquire_ds();
    const uint32_t to = shared_address(memory_.ds[stream_.own()][n_ % 2]);
#pragma unroll
    for (int i = 0; i < kPanel / 16 / kWarpgroup; ++i)
      st_shared_16(to + (threadIdx.x % kWarpgroup + i * kWarpgroup) * 16, {});
    announce_ds(stage);
  }

  // Notes where its dQ belongs before the stage is released.
  __device__ __forceinline__ void announce_ds(int stage) {
    const int own = stream_.own();
    fence_proxy_async();
    memory_.ds_pipeline[own].full[n_ % 2].arrive_warp();
    if (own != 0 || !is_warpgroup_leader()) return;
    const auto& work = memory_.work[0];
    const int pair = work.b * static_cast<int>(g_.q.heads) + work.h;
    const int2 told = ld_shared_int2(shared_address(&memory_.info[stage][2]));
    memory_.of_ds[n_ % 2] = {pair * scratch_.tiles + told.x, told.y < 0 ? ~told.y : told.y};
  }

  // dQ of the iteration before. The first one of a work item has none before it: its sum is of
  // what happens to be there, and is dropped.
  __device__ __forceinline__ void issue_dq(float (&dq)[32], bool first) const {
    const unsigned before = n_ - 1;
#pragma unroll
    for (int owner = 0; owner < M::kOwners && !first; ++owner)
      memory_.ds_pipeline[owner].full[before % 2].wait(before / 2 % 2);
    pin(dq);
    wgmma_fence();
#pragma unroll
    for (int owner = 0; owner < M::kOwners; ++owner)
      mma_atb<T>(dq, descriptor(memory_.ds[owner][before % 2]),
                 descriptor(memory_.own[0][owner].x[stream_.own()]), owner > 0);
    wgmma_commit_group();
  }

  // Once the MMAs of iteration n_ and of dQ of the one before have ended.
  __device__ __forceinline__ void end_iteration(Accumulators& acc, float (&dq)[32], int stage,
                                                bool& first) {
    pin(acc.dk), pin(acc.dv), pin(acc.p_operand), pin(acc.ds_operand), pin(dq);
    stream_.release(stage);
    if (!first) put_dq(dq);
    first = false;
    ++n_;
  }

  // ---- dQ of iteration n_ - 1, to the thread that sends it ----

  __device__ __forceinline__ void put_dq(const float (&dq)[32]) {
    const int own = stream_.own();
    const unsigned before = n_ - 1;
    for (auto& of_owner : memory_.ds_pipeline) of_owner.release(before % 2);
    open_dq(before);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      st_shared_float4(shared_address(&memory_.dq[before % 2][own][i][threadIdx.x % kWarpgroup]),
                       {dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]});
    close_dq(before, memory_.of_ds[before % 2]);
  }

  __device__ __forceinline__ void open_dq(unsigned n) const {
    memory_.dq_pipeline.empty[n % 2].wait(n / 2 % 2 ^ 1);
  }

  __device__ __forceinline__ void close_dq(unsigned n, QueryPlace place) {
    if (stream_.own() == 0 && is_warpgroup_leader()) memory_.place[n % 2] = place;
    fence_proxy_async();
    memory_.dq_pipeline.full[n % 2].arrive_warp();
  }

  M& memory_;
  const AttentionBackward& g_;
  const FusedScratch& scratch_;
  Consumer<M> stream_;
  unsigned n_ = 0;  // iterations, of all work items
};

// ---- the kernel ----

template <class T, int D>
struct FusedKernel {
  using SharedStorage = FusedMemory<D>;
  static constexpr int kThreads = SharedStorage::kThreads;
  static constexpr RegisterSplit kRegisters =
      D == 64 ? RegisterSplit{48, 200, 64} : RegisterSplit{40, 232};

  __device__ __forceinline__ static void init(SharedStorage& memory, const auto&...) {
    memory.init();
    griddepcontrol_wait();
  }

  __device__ __forceinline__ static void produce(SharedStorage& memory, const AttentionBackward& g,
                                                 const AttentionPass& pass,
                                                 const TensorMaps& tensor_maps,
                                                 const FusedScratch& scratch) {
    constexpr int kProducers = SharedStorage::kProducingWarps;
    if (threadIdx.x < kProducers * 32) {
      TensorView scalars = g.lse;
      scalars.data = scratch.scalars;
      Producer<Direction::key_stationary, SharedStorage>(memory).run(
          g.maps, pass, pass.key_tiles, {g.k, g.v, g.q, g.dy, scalars, scalars}, tensor_maps);
    } else if (threadIdx.x % 32 == 0) {
      TurnTaker<D>(memory, scratch, static_cast<int>(threadIdx.x / 32) - kProducers).run();
    }
  }

  __device__ __forceinline__ static void consume(SharedStorage& memory, const AttentionBackward& g,
                                                 const AttentionPass& pass,
                                                 const TensorMaps& tensor_maps,
                                                 const FusedScratch& scratch) {
    if constexpr (D == 64)
      own_keys<T>(memory, g);
    else
      Fused128Owner<T>(memory, g, scratch).run();
  }

  __device__ __forceinline__ static void consume_extra(SharedStorage& memory,
                                                       const AttentionBackward& g,
                                                       const AttentionPass& pass,
                                                       const TensorMaps& tensor_maps,
                                                       const FusedScratch& scratch) {
    FusedDqAccumulator<T>(memory, g, pass, scratch).run();
  }
};

// How many pairs (batch, head) are worked on at a time. Heads of up to 64: all, as of few, more
// tasks of each would wait for their turn to add to dQ. Heads of 128 stream twice the bytes: 8 to
// 16 blocks share a pair, so that they find q, dy and dQ in the L2, each a tile behind another.
// Such a number divides all pairs and leaves the fewest multiprocessors without a block.
inline int fused_together(int64_t pairs, bool heads_of_128) {
  const int64_t blocks = multiprocessors();
  if (!heads_of_128 || pairs <= blocks / 8) return static_cast<int>(pairs);
  int64_t best = pairs, most = 0;
  for (int64_t together = blocks / 16; together <= blocks / 8; ++together)
    if (pairs % together == 0 && blocks / together * together >= most)
      best = together, most = blocks / together * together;
  return static_cast<int>(best);
}

// Work items that run at a time: of groups of pairs, as many of each pair, so that each block takes
// long and short lists of a pair alike.
inline int64_t fused_items(const AttentionBackward& g, const AttentionPass& pass, int together) {
  const int64_t items = blocks_for(g.q, pass.key_tiles, kTaskTiles), blocks = multiprocessors();
  if (together == g.q.batch * g.q.heads || together > blocks) return items;
  return std::min(items, blocks / together * together);
}

template <class T, int D>
void launch_fused(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass,
                  const TensorMaps& tensor_maps, const FusedScratch& scratch) {
  const int64_t pairs = g.q.batch * g.q.heads,
                rows = std::max(pairs * g.q.time, pairs * scratch.tiles);
  const auto blocks = static_cast<unsigned>((rows + kRowsOfBlock<D> - 1) / kRowsOfBlock<D>);
  begin_fused_kernel<T, D><<<blocks, kRowThreads, 0, queue.stream>>>(g, pass, scratch);
  launch_persistent_dependent<FusedKernel<T, D>>(queue, fused_items(g, pass, tensor_maps.together),
                                                 g, pass, tensor_maps, scratch);
  if constexpr (D == 128)
    launch_dependent(queue, round_dq_kernel<T>, static_cast<unsigned>(pairs * pass.query_tiles),
                     kRoundThreads, g, pass, scratch);
}

void launch_fused_backward(CudaQueue& queue, const AttentionBackward& g,
                           const AttentionPass& pass) {
  TensorMaps tensor_maps{};
  WEFT_CHECK(describe(tensor_maps, pass.key_run, g.k, g.v, pass.query_run, g.q, g.dy), kTmaRefuses);
  const bool heads_of_128 = g.q.size > 64;
  tensor_maps.together = fused_together(g.q.batch * g.q.heads, heads_of_128);
  const int64_t needed = scratch_of(Kernel::hopper_fused, Problem::of(g), pass);
  WEFT_CHECK(g.scratch.size() >= needed, "attention: scratch of ", g.scratch.size(),
             " elements, needed are ", needed);
  const FusedScratch scratch = FusedScratch::of(g, pass);
  with_type(g, [&]<class T>() {
    heads_of_128 ? launch_fused<T, 128>(queue, g, pass, tensor_maps, scratch)
                 : launch_fused<T, 64>(queue, g, pass, tensor_maps, scratch);
  });
}
}  // namespace weft::attention::hopper
