// SPDX-License-Identifier: MIT
// The walk of a forward consumer over its key tiles.
#pragma once

#include "kernels/attention_hopper_softmax.cuh"

namespace weft::attention::hopper {

// Sums of a consumer, and what is done to them between waits.
template <class T, int Dv>
struct ForwardSums {
  float y[Dv / 2], s[32];
  Softmax softmax;

  __device__ __forceinline__ explicit ForwardSums(float scale_log2) : softmax{scale_log2} {
#pragma unroll
    for (int i = 0; i < Dv / 2; ++i) y[i] = 0;
  }
  template <class Q>
  __device__ __forceinline__ static void start_scores(float (&s)[32], const Q& q, std::uint32_t keys) {
    pin(s);
    begin_products();
    q.template start_product<T>(s, keys);
    commit_products();
  }
  __device__ __forceinline__ void start_values(const std::uint32_t (&p)[4][4], std::uint32_t values) {
    start_sums<T>(y, p, descriptor(values));
  }
};

// Masks of a tile's scores.
struct ScoreMask {
  MaskWords words;
  int mask;
  __device__ __forceinline__ void load(const std::uint64_t* masks, int of) {
    mask = of;
    if (mask >= 0) words.load(masks, mask);
  }
  // Once the scores are there.
  __device__ __forceinline__ void hide(float (&s)[32]) const {
    pin(s);
    if (mask >= 0) words.apply(s, -INFINITY);
  }
};

// The values of a step are added beside the probabilities of the next one.
template <class T, int Dv, class M, class Q>
__device__ __forceinline__ void walk_forward(ForwardSums<T, Dv>& sums, Consumer<M>& stream, const M& memory,
                                             const std::uint64_t* masks, const Q& q) {
  std::uint32_t p[4][4];  // probabilities
  ScoreMask hidden;
  int mask = stream.next();
  // Scores into probabilities, with a new reference.
  const auto begin = [&] {
    hidden.hide(sums.s);
    sums.softmax.begin(sums.s);
    sums.softmax.rescale(sums.y);
  };
  while (mask != kEnd) {
    sums.start_scores(sums.s, q, memory.x(stream.stage()));
    hidden.load(masks, mask);
    int following = stream.step();
    wait_for_products<0>();
    begin();
    sums.softmax.add();
    round_to_operand<T>(p, sums.s);
    while (is_tile(mask = following)) {
      const int stage = stream.stage(), before = stream.stage_before();
      pin(sums.y);
      sums.start_scores(sums.s, q, memory.x(stage));
      sums.start_values(p, memory.y(before));
      commit_products();
      hidden.load(masks, mask);
      following = stream.step();  // waits early: that is hidden behind the products
      wait_for_products<1>();
      hidden.hide(sums.s);
      sums.softmax.apply(sums.s);
      pin(sums.s);
      wait_for_products<0>();
      pin(sums.y);
      stream.release(before);
      if (sums.softmax.failed()) {  // in this warp, not in its group
        q.template multiply_in_warp<T>(sums.s, memory.x(stage));
        begin();
      }
      sums.softmax.add();
      round_to_operand<T>(p, sums.s);
    }
    const int last = stream.last_tile(mask);
    pin(sums.y);
    begin_products();
    sums.start_values(p, memory.y(last));
    commit_products();
    wait_for_products<0>();
    pin(sums.y);
    stream.release(last);
    if (mask == kSkip) mask = stream.next();
  }
}

}  // namespace weft::attention::hopper
