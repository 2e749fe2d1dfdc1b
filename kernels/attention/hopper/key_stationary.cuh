// SPDX-License-Identifier: MIT
// The key-stationary kernel of backward attention on Hopper: dK and dV. Everything is transposed
// (rows are keys), so that P^T and dS^T are A operands without leaving the registers.
#pragma once

#include "kernels/attention/hopper/epilogue.cuh"
#include "kernels/attention/hopper/masks.cuh"
#include "kernels/attention/hopper/producer.cuh"

namespace weft::attention::hopper {
template <int Dqk, int Dv, bool kTma>
struct KeyStationaryShape {
  // As the registers allow: operands in registers; MMAs that overlap the next iteration.
  static constexpr bool kDelayed = Dqk == 64 && Dv == 64, kInRegisters = kDelayed && kTma;
  static constexpr int kStages = Dv == 128 ? 4 : 6, kOwnStages = Dqk == 128 ? 1 : 2;
  using M = Memory<2, Dqk, Dv, true, true, kStages, kOwnStages, kTma>;
  static constexpr RegisterSplit kRegisters = {
      .producer = kTma ? 40 : 56,
      .consumer = kTma ? 232 : 224,
  };
};

// The key-stationary kernels keep probabilities, as operands, and dV times 2^kProbabilityBits. f16
// has all its digits only above 6e-5: the dV of rarely attended keys would have few. 2^14 is a
// quarter of its largest number. dS has no such scale: dP and delta are times kProbabilityUnit
// before they meet a probability.
template <class T>
inline constexpr int kProbabilityBits = dtype_of<T> == DType::f16 ? 14 : 0;
// What an operand of 1 stands for.
template <class T>
inline constexpr float kProbabilityUnit = 1.0f / static_cast<float>(1 << kProbabilityBits<T>);

// What is added to scaled scores, so that their exp2 is a probability times 2^kProbabilityBits.
// Infinite for queries that attend nothing (lse = -inf): all their pairs are masked, and become 0.
template <class T>
__device__ __forceinline__ float less_lse(float lse) {
  if constexpr (kProbabilityBits<T> == 0) return lse * -kLog2E;
  return fmaf(lse, -kLog2E, kProbabilityBits<T>);
}

// dP into dS: `p` is times 2^kProbabilityBits, `delta` times kProbabilityUnit. Both scales are
// exact: products of f16 are multiples of 2^-48, far above the smallest of f32.
template <class T>
__device__ __forceinline__ float score_gradient(float p, float dp, float delta) {
  if constexpr (kProbabilityBits<T> == 0) return p * (dp - delta);
  return p * fmaf(dp, kProbabilityUnit<T>, -delta);
}

// As round_to_operand(). Scores rounded above the bound give the type's largest number; NaN stays
// NaN.
template <class T>
__device__ __forceinline__ void round_probabilities(uint32_t (&a)[4][4], const float (&s)[32]) {
  if constexpr (kProbabilityBits<T> == 0) {
    round_to_operand<T>(a, s);
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) a[i / 4][i % 4] = pack_f16_saturated(s[2 * i], s[2 * i + 1]);
  }
}

// lse and delta of the columns 8 j + 2 t, 8 j + 2 t + 1 of a stage.
struct StageScalars {
  float lse[2], delta[2];

  __device__ __forceinline__ StageScalars(SharedAddress scalars, int j) {
    const float4 x = ld_shared_float4(scalars + threadIdx.x % 4 * 16 + j * 64);
    lse[0] = x.x, lse[1] = x.y, delta[0] = x.z, delta[1] = x.w;
  }
};

// Transposed scores and dP into probabilities times 2^kProbabilityBits and dS; kMasked: by `words`.
template <class T, bool kMasked>
__device__ __forceinline__ void differentiate_transposed(float (&s)[32], float (&dp)[32],
                                                         SharedAddress scalars, float scale,
                                                         const MaskWords& words) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const StageScalars of(scalars, j);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float p = exp2_fast(fmaf(s[4 * j + i], scale, less_lse<T>(of.lse[i % 2])));
      if (kMasked && !words.at(i / 2, j, i % 2)) p = 0;
      s[4 * j + i] = p;
      dp[4 * j + i] = score_gradient<T>(p, dp[4 * j + i], of.delta[i % 2] * kProbabilityUnit<T>);
    }
  }
}

template <class T, int Dqk, int Dv>
struct KeyAccumulators {
  float dk[Dqk / 2], dv[Dv / 2], s[32], ds[32], scale;
  uint32_t p_operand[4][4], ds_operand[4][4];
  MaskWords words;

  __device__ __forceinline__ explicit KeyAccumulators(float scale_log2)
      : scale(scale_log2) {
#pragma unroll
    for (int i = 0; i < Dqk / 2; ++i) dk[i] = 0;
#pragma unroll
    for (int i = 0; i < Dv / 2; ++i) dv[i] = 0;
  }

  template <class M, class K, class V>
  __device__ __forceinline__ void issue_scores(const M& memory, int stage, const K& k, const V& v) {
    pin(s), pin(ds);
    wgmma_fence();
    k.template mma_abt<T>(s, descriptor(memory.stages[stage].x));
    v.template mma_abt<T>(ds, descriptor(memory.stages[stage].y));
    wgmma_commit_group();
  }

  __device__ __forceinline__ void issue_values(SharedAddress y) {
    pin(dv);
    wgmma_fence();
    mma_ab<T>(dv, p_operand, descriptor(y), 1);
    wgmma_commit_group();
  }

  __device__ __forceinline__ void issue_keys(SharedAddress x) {
    pin(dk);
    wgmma_fence();
    mma_ab<T>(dk, ds_operand, descriptor(x), 1);
    wgmma_commit_group();
  }

  __device__ __forceinline__ void differentiate(SharedAddress scalars, int mask) {
    pin(s), pin(ds);
    if (mask >= 0)
      differentiate_transposed<T, true>(s, ds, scalars, scale, words);
    else
      differentiate_transposed<T, false>(s, ds, scalars, scale, words);
  }
};

// The MMAs that end an iteration are issued after those that begin the next one.
template <class T, int Dqk, int Dv, class M, class K, class V>
__device__ __forceinline__ void overlapped_mainloop(KeyAccumulators<T, Dqk, Dv>& acc,
                                                    Consumer<M>& stream, const M& memory,
                                                    const uint64_t* masks, const K& k, const V& v) {
  int mask = stream.next();
  // Waits for the next iteration early: that is hidden behind the MMAs.
  const auto look_ahead = [&] {
    if (mask >= 0) acc.words.load(masks, mask);
    return stream.step();
  };
  while (mask != kEnd) {
    const int first = stream.stage();
    acc.issue_scores(memory, first, k, v);
    int following = look_ahead();
    wgmma_wait_group<0>();
    acc.differentiate(memory.scalars[first], mask);
    round_probabilities<T>(acc.p_operand, acc.s);
    round_to_operand<T>(acc.ds_operand, acc.ds);
    while (is_tile(mask = following)) {
      const int stage = stream.stage(), before = stream.stage_before();
      acc.issue_scores(memory, stage, k, v);
      acc.issue_values(memory.stages[before].y);
      acc.issue_keys(memory.stages[before].x);
      following = look_ahead();
      wgmma_wait_group<0>();
      pin(acc.dk), pin(acc.dv), pin(acc.p_operand), pin(acc.ds_operand);
      stream.release(before);
      acc.differentiate(memory.scalars[stage], mask);
      round_probabilities<T>(acc.p_operand, acc.s);
      round_to_operand<T>(acc.ds_operand, acc.ds);
    }
    const int last = stream.last_tile(mask);
    acc.issue_values(memory.stages[last].y);
    acc.issue_keys(memory.stages[last].x);
    wgmma_wait_group<0>();
    pin(acc.dk), pin(acc.dv);
    stream.release(last);
    if (mask == kSkip) mask = stream.next();
  }
}

// Each iteration ends before the next one begins: for accumulators that fill the registers.
template <class T, int Dqk, int Dv, class M, class K, class V>
__device__ __forceinline__ void plain_mainloop(KeyAccumulators<T, Dqk, Dv>& acc,
                                               Consumer<M>& stream, const M& memory,
                                               const uint64_t* masks, const K& k, const V& v) {
  for (int mask = stream.next(); mask != kEnd;) {
    const int stage = stream.stage();
    acc.issue_scores(memory, stage, k, v);
    if (mask >= 0) acc.words.load(masks, mask);
    const int following = stream.step();
    wgmma_wait_group<0>();
    acc.differentiate(memory.scalars[stage], mask);
    round_probabilities<T>(acc.p_operand, acc.s);
    round_to_operand<T>(acc.ds_operand, acc.ds);
    acc.issue_values(memory.stages[stage].y);
    acc.issue_keys(memory.stages[stage].x);
    wgmma_wait_group<0>();
    pin(acc.dk), pin(acc.dv);
    stream.release(stage);
    mask = following == kSkip ? stream.next() : following;
  }
}

// Batch and head of a work item and whether results are added, in one register.
template <class Work>
__device__ __forceinline__ int place_of(const Work& work, int heads) {
  return (work.b * heads + work.h) * 2 + work.accumulate;
}

template <class T, class Sums>
__device__ __forceinline__ void store_dk_dv(const Sums& acc, const AttentionBackward& g, int place,
                                            const int (&position)[2]) {
  const int heads = static_cast<int>(g.q.heads), b = place / 2 / heads, h = place / 2 % heads;
  const Rows dk_rows = Rows::of(g.dk, b, h), dv_rows = Rows::of(g.dv, b, h);
  const auto scale = static_cast<float>(g.scale);
  const auto store = [&](bool add) {
    store_rows<T>(acc.dk, scale, add, position, dk_rows);
    store_rows<T>(acc.dv, kProbabilityUnit<T>, add, position, dv_rows);
  };
  place % 2 ? store(true) : store(false);
}

template <class T, int Dqk, int Dv, bool kTma>
__device__ __forceinline__ void consume_key_stationary(
    typename KeyStationaryShape<Dqk, Dv, kTma>::M& memory, const AttentionBackward& g) {
  using Shape = KeyStationaryShape<Dqk, Dv, kTma>;
  using M = typename Shape::M;
  Consumer<M> stream(memory);
  const float scale = static_cast<float>(g.scale) * kLog2E;
  for (;;) {
    const auto& work = stream.take_work();
    if (warp_uniform(work.end)) break;
    int position[2], place;
    const auto locate = [&] {
      position[0] = position_of(work, stream.own(), 0);
      position[1] = position_of(work, stream.own(), 1);
      place = place_of(work, static_cast<int>(g.q.heads));
    };
    locate();
    if (work.accumulate) {
      prefetch_rows(position, Rows::of(g.dk, work.b, work.h));
      prefetch_rows(position, Rows::of(g.dv, work.b, work.h));
    }
    const uint64_t* const masks = work.masks;
    Owned<Dqk, Shape::kInRegisters> k;
    Owned<Dv, Shape::kInRegisters> v;
    k.load(stream.own_tile().x);
    v.load(stream.own_tile().y);
    if constexpr (Shape::kInRegisters) stream.release_work();

    KeyAccumulators<T, Dqk, Dv> acc(scale);
    if constexpr (Shape::kDelayed)
      overlapped_mainloop(acc, stream, memory, masks, k, v);
    else
      plain_mainloop(acc, stream, memory, masks, k, v);
    if constexpr (Dqk == 128) locate();  // once more: registers are scarce
    if constexpr (!Shape::kInRegisters) stream.release_work();
    store_dk_dv<T>(acc, g, place, position);
  }
}

template <class T, int Dqk, int Dv, bool kTma>
struct KeyStationaryKernel {
  using Shape = KeyStationaryShape<Dqk, Dv, kTma>;
  using SharedStorage = typename Shape::M;
  static constexpr int kThreads = SharedStorage::kThreads;
  static constexpr RegisterSplit kRegisters = Shape::kRegisters;

  __device__ __forceinline__ static void init(SharedStorage& memory, const auto&...) {
    memory.init();
  }

  __device__ __forceinline__ static void produce(SharedStorage& memory, const AttentionBackward& g,
                                                 const AttentionPass& pass,
                                                 const TensorMaps& tensor_maps) {
    hopper::produce<Direction::key_stationary>(memory, g.maps, pass, pass.key_tiles,
                                               {g.k, g.v, g.q, g.dy, g.lse, g.delta}, tensor_maps);
  }

  __device__ __forceinline__ static void consume(SharedStorage& memory, const AttentionBackward& g,
                                                 const auto&...) {
    consume_key_stationary<T, Dqk, Dv, kTma>(memory, g);
  }
};

// The memory map of README.md.
static_assert(sizeof(KeyStationaryShape<64, 64, true>::M) == 167'216);
static_assert(sizeof(KeyStationaryShape<64, 128, true>::M) == 198'896);
static_assert(sizeof(KeyStationaryShape<128, 128, true>::M) == 198'848);
}  // namespace weft::attention::hopper
