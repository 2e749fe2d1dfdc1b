// SPDX-License-Identifier: MIT
// hopper/window: what it covers, lengths and windows at the edges of tiles, in every form that
// covers them, and the same bits every time.
#include "kernels/attention/select.h"
#include "tests/kernels/attention/attention_case.h"

#include <gtest/gtest.h>
#include <utility>

#ifdef WEFT_CUDA
#include "tests/kernels/attention/attention_gpu.h"
#endif

namespace weft {
namespace {
using attention::Kernel;
using attention_test::hopper_kernel_of, attention_test::pass_of, attention_test::problem_of;

// Both directions of a first pass agree.
bool covers(const AttentionBackward& g, const AttentionPass& pass) {
  AttentionForward f;
  f.q = g.q, f.k = g.k, f.v = g.v, f.y = g.y;
  const bool forward = hopper_kernel_of(f, pass) == Kernel::hopper_window;
  EXPECT_EQ(forward, hopper_kernel_of(g, pass) == Kernel::hopper_window);
  return forward;
}

TEST(AttentionWindow, CoversThreeToFiveKeyTiles) {
  for (const int32_t stride : {1, 13}) {
    const AttentionBackward g = problem_of(int64_t{600} * stride, 64, 64);
    EXPECT_FALSE(covers(g, pass_of({stride, 128, 0})));  // hopper/band does that
    EXPECT_TRUE(covers(g, pass_of({stride, 129, 0})));
    EXPECT_TRUE(covers(g, pass_of({stride, 257, 0})));
    EXPECT_FALSE(covers(g, pass_of({stride, 258, 0})));
    EXPECT_FALSE(
        // whole columns
        covers(problem_of(int64_t{200} * stride, 64, 64), pass_of({stride, 200, 0})));
    EXPECT_TRUE(covers(problem_of(int64_t{201} * stride, 24, 40), pass_of({stride, 200, 0})));
    EXPECT_FALSE(covers(problem_of(int64_t{600} * stride, 72, 64), pass_of({stride, 200, 0})));
    EXPECT_FALSE(covers(problem_of(int64_t{600} * stride, 64, 128), pass_of({stride, 200, 0})));
  }
  AttentionPass rest = pass_of({1, 200, 0}), small = pass_of({1, 200, 0});
  rest.accumulate = true;
  small.edge = kSmallTile;
  EXPECT_FALSE(covers(problem_of(600, 64, 64), rest));
  EXPECT_FALSE(covers(problem_of(600, 64, 64), small));
  EXPECT_FALSE(covers(problem_of(600, 64, 64), AttentionPass{}));
}

TEST(AttentionWindow, TakesStridesThatTmaTakes) {
  AttentionBackward shared_keys = problem_of(600, 64, 64), backwards = problem_of(600, 64, 64);
  shared_keys.k.head_stride = 0;
  backwards.y.batch_stride *= -1;
  EXPECT_FALSE(covers(shared_keys, pass_of({1, 200, 0})));
  EXPECT_FALSE(covers(backwards, pass_of({1, 200, 0})));
}

#ifdef WEFT_CUDA
using namespace attention_test;

template <class T>
void expect_window(const PatternSpec& spec, const Sizes& size) {
  expect_agreement<T>(spec, size, [](Data<T>& x, const AttentionMaps& maps) {
    return hopper_kernel_of(x.forward(maps), maps.pass[0]) == Kernel::hopper_window &&
           hopper_kernel_of(x.backward(maps), maps.pass[0]) == Kernel::hopper_window;
  });
}

TEST(CudaAttentionWindow, ReachesAndLengths) {
  for (const int64_t l : {129, 130, 191, 192, 193, 194, 255, 256, 257}) {
    for (const int64_t n : {l + 1, int64_t{320}, int64_t{511}})
      expect_window<bf16>({"local", l}, {1, n, 2, 16, 16});
    expect_window<f16>({"local", l}, {1, 700, 1, 64, 64});
  }
}

// The window is longer than the sequence, or as long: other kernels.
TEST(CudaAttentionWindow, ShortSequences) {
  for (const int64_t n : {1, 63, 130, 200})
    expect_agreement<bf16>(*make_pattern({"local", 200}, 2), {{2, n, 2, 64, 64}, kTile},
                           "local 200");
}

TEST(CudaAttentionWindow, HeadSizes) {
  for (const auto& [qk, v] : {std::pair{8, 8}, {24, 48}, {64, 40}, {64, 64}}) {
    expect_window<bf16>({"local", 150}, {2, 333, 2, qk, v});
    expect_window<f16>({"local", 220}, {2, 333, 2, qk, v});
  }
}

// More runs than a grid has blocks, runs that share queries.
TEST(CudaAttentionWindow, Many) {
  expect_window<bf16>({"local", 160}, {2, 1000, 20, 16, 16});
  expect_window<bf16>({"local", 256}, {9, 500, 17, 16, 16});
}

// A pass that adds to what a window left.
TEST(CudaAttentionWindow, Rests) {
  PatternSpec both{.kind = "merged"};
  for (const auto& [l, rows] : {std::pair{130, 3}, {200, 5}, {256, 2}}) {
    both.of = {{"local", l}, {"strided", l}};
    expect_window<bf16>(both, {1, int64_t{rows} * l, 2, 16, 16});
  }
}

TEST(CudaAttentionWindow, AThousandRunsGiveTheSameBits) {
  for (const int64_t l : {200, 256}) {
    const Sizes size{2, 1500, 9, 64, 64};
    const GpuMaps maps(*make_pattern({"local", l}, 9), 9, size.time, 64, kTile);
    Data<bf16> x(size);
    run_on_gpu(x, maps.maps);
    OnGpu<bf16> d(x);
    Data<bf16> again = x;
    int other_bits = 0;
    for (int repeat = 0; repeat < 1000; ++repeat) {
      launch(gpu().queue, d.forward(maps.maps));
      launch(gpu().queue, d.backward(maps.maps));
      // what is fetched costs more than what is run
      if (repeat % 50 != 0 && repeat < 995) continue;
      d.fetch(again);
      other_bits += !same_results(again, x);
    }
    EXPECT_EQ(other_bits, 0) << l;
  }
}
#endif
}  // namespace
}  // namespace weft
