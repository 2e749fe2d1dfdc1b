// SPDX-License-Identifier: MIT
// The mainloop of a forward consumer over its key tiles.
#pragma once

#include "kernels/attention/hopper/masks.cuh"
#include "kernels/attention/hopper/softmax.cuh"
#include "kernels/attention/hopper/stream.cuh"

namespace weft::attention::hopper {
template <class T, int Dv>
struct ForwardAccumulators {
  float y[Dv / 2], s[32];
  Softmax softmax;

  __device__ __forceinline__ explicit ForwardAccumulators(float scale_log2)
      : softmax{scale_log2} {
#pragma unroll
    for (int i = 0; i < Dv / 2; ++i) y[i] = 0;
  }

  template <class Q>
  __device__ __forceinline__ void issue_scores(const Q& q, Descriptor keys) {
    pin(s);
    wgmma_fence();
    q.template mma_abt<T>(s, keys);
    wgmma_commit_group();
  }

  __device__ __forceinline__ void issue_values(const uint32_t (&p)[4][4], Descriptor values) {
    mma_ab<T>(y, p, values, 1);
    wgmma_commit_group();
  }
};

template <class M>
struct StageDescriptors {
  Descriptor first;

  __device__ __forceinline__ explicit StageDescriptors(const M& memory)
      : first(descriptor(memory.stages[0].x)) {}

  __device__ __forceinline__ Descriptor keys(int stage) const {
    return first + stage * static_cast<int>(sizeof(M::stages[0]) / 16);
  }

  __device__ __forceinline__ Descriptor values(int stage) const {
    return keys(stage) + static_cast<int>(sizeof(M::stages[0].x) / 16);
  }
};

// Rows that are gathered have many masks: those of a tile are loaded while the one before is worked
// on.
template <class M>
inline constexpr bool kHidesEarly = requires { requires !M::kTma; };

__device__ __forceinline__ MaskWords hidden_at(const uint64_t* masks, int mask) {
  MaskWords words;
  if (mask >= 0 && mask != kEnd) words.load(masks, mask);
  return words;
}

// Sets the scores of pairs that the tile's mask leaves out to -infinity.
__device__ __forceinline__ void hide(float (&s)[32], const MaskWords& words, int) {
  pin(s);
  words.apply(s, -INFINITY);
}

template <class M, class Hidden, class Masks>
__device__ __forceinline__ void hide_pairs(float (&s)[32], const Hidden& hidden, const Masks& masks,
                                           int mask) {
  if (mask >= 0) hide(s, kHidesEarly<M> ? hidden : hidden_at(masks, mask), mask);
}

// An iteration after the first: its scores; its softmax overlaps P V of the iteration before, whose
// probabilities are `p`. `hidden`: where masks are loaded early, the words of this mask, and then
// of the next. Returns the mask of the next iteration.
template <class T, int Dv, class Stream, class M, class Masks, class Q, class Hidden>
__device__ __forceinline__ int forward_iteration(ForwardAccumulators<T, Dv>& acc,
                                                 uint32_t (&p)[4][4], Stream& stream,
                                                 const M& memory, const StageDescriptors<M>& at,
                                                 const Masks& masks, const Q& q, int mask,
                                                 Hidden&& hidden) {
  const int stage = stream.stage(), before = stream.stage_before();
  pin(acc.y);
  acc.issue_scores(q, at.keys(stage));
  acc.issue_values(p, at.values(before));
  const int following = stream.step();  // waits early: that is hidden behind the MMAs
  wgmma_wait_group<1>();
  pin(acc.s);
  hide_pairs<M>(acc.s, hidden, masks, mask);
  acc.softmax.apply_again(acc.s);
  // The branch keeps the compiler from waiting for P V ahead of the exp2.
  const bool failed = acc.softmax.failed();
  if (failed) {  // in this warp, not in its group
    q.template mma_abt_in_warp<T>(acc.s, memory.stages[stage].x);
    if (mask >= 0) hide(acc.s, hidden_at(masks, mask), mask);
    acc.softmax.begin(acc.s);
  }
  if constexpr (kHidesEarly<M>) hidden = hidden_at(masks, following);
  wgmma_wait_group<0>();
  pin(acc.y);
  stream.release(before);
  if (failed) acc.softmax.rescale(acc.y);
  acc.softmax.add();
  round_to_operand<T>(p, acc.s);
  return following;
}

// The same where few warps hide each other's waits: the rest of the iteration stands between exp2.
// The branch in await_step() keeps the compiler from waiting for P V first. A skipped next stage is
// not released.
template <class T, int Dv, class Stream, class M, class Masks, class Q>
__device__ __forceinline__ int forward_iteration_interleaved(
    ForwardAccumulators<T, Dv>& acc, uint32_t (&p)[4][4], Stream& stream, const M& memory,
    const StageDescriptors<M>& at, const Masks& masks, const Q& q, int mask) {
  constexpr int kAhead = 8;  // exp2 ahead of the branch
  const int stage = stream.stage(), before = stream.stage_before();
  const bool has_next = stream.has_step();
  pin(acc.y);
  acc.issue_scores(q, at.keys(stage));
  acc.issue_values(p, at.values(before));
  wgmma_wait_group<1>();
  pin(acc.s);
  if (mask >= 0) hide(acc.s, hidden_at(masks, mask), mask);
  acc.softmax.template apply_again<0, kAhead>(acc.s);
  stream.await_step(has_next);
  const int following = stream.take_step(stream.look_at_step());
  wgmma_wait_group<0>();
  pin(acc.y);
  acc.softmax.template apply_again<kAhead, 32>(acc.s);
  round_to_operand<T>(p, acc.s);
  stream.release(before);
  if (acc.softmax.failed()) {  // in this warp, not in its group
    q.template mma_abt_in_warp<T>(acc.s, memory.stages[stage].x);
    if (mask >= 0) hide(acc.s, hidden_at(masks, mask), mask);
    acc.softmax.begin(acc.s);
    acc.softmax.rescale(acc.y);
    round_to_operand<T>(p, acc.s);
  }
  acc.softmax.add();
  return following;
}

// The values of a step are added beside the probabilities of the next one. Stream: as Consumer (of
// the parts of step() only kInterleaved has a need); hidden_at() takes `masks` and what its steps
// return.
template <class T, bool kInterleaved, int Dv, class Stream, class M, class Masks, class Q>
__device__ __forceinline__ void forward_mainloop(ForwardAccumulators<T, Dv>& acc, Stream& stream,
                                                 const M& memory, const Masks& masks, const Q& q) {
  const StageDescriptors<M> at(memory);
  uint32_t p[4][4];  // probabilities
  for (int mask = stream.next(); mask != kEnd;) {
    acc.issue_scores(q, at.keys(stream.stage()));
    auto hidden = hidden_at(masks, kHidesEarly<M> ? mask : kSkip);
    int following;
    if constexpr (kInterleaved) {
      stream.await_step(false);
      following = stream.take_step(stream.look_at_step());
    } else {
      following = stream.step();
    }
    wgmma_wait_group<0>();
    pin(acc.s);
    hide_pairs<M>(acc.s, hidden, masks, mask);
    if constexpr (kHidesEarly<M>) hidden = hidden_at(masks, following);
    acc.softmax.begin(acc.s);
    acc.softmax.rescale(acc.y);
    acc.softmax.add();
    round_to_operand<T>(p, acc.s);
    for (mask = following; is_tile(mask);) {
      if constexpr (kInterleaved)
        mask = forward_iteration_interleaved<T>(acc, p, stream, memory, at, masks, q, mask);
      else
        mask = forward_iteration<T>(acc, p, stream, memory, at, masks, q, mask, hidden);
    }
    const int last = stream.last_tile(mask);
    if constexpr (kInterleaved)
      if (mask == kSkip) stream.release(stream.stage());
    pin(acc.y);
    wgmma_fence();
    acc.issue_values(p, at.values(last));
    wgmma_wait_group<0>();
    pin(acc.y);
    stream.release(last);
    if (mask == kSkip) mask = stream.next();
  }
}
}  // namespace weft::attention::hopper
